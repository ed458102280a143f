/* Factorisation machines with softmax, for fm_model.c: what it does with one score, with a score
 * for each class. Without fields.
 *
 * Threads: any; a workspace has one at a time. */
#ifndef RUBATO_APPS_FM_FM_CLASSES_H
#define RUBATO_APPS_FM_FM_CLASSES_H

#include "apps/fm/fm_model.h"

FmTally fm_classes_gradient(const FmModel *model, const RubatoBatch *batch, FmWorkspace *workspace,
                            double scale);
void fm_classes_score(const FmModel *model, const RubatoBatch *batch, const FmWorkspace *workspace,
                      double *scores);

#endif
