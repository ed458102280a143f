/* Training that is validated: after each epoch the model is measured on rows of its own, training
 * ends when it gets no better, and the best model is kept.
 *
 * Threads: main's. */
#ifndef RUBATO_APPS_KIT_APP_VALIDATION_H
#define RUBATO_APPS_KIT_APP_VALIDATION_H

#include "apps/kit/app.h"

/* The mean loss of the rows of --validate, by the model as it is; on the reporting node, while no
 * task runs. */
typedef bool (*AppMeasureFunc)(double *loss, void *user_data, GError **error);

/* As app_train, with a task for each epoch if --validate was given. After it the model has the rows
 * of the epoch with the lowest loss. The reporting node's memory holds a copy of the model
 * meanwhile. What is wrong with the rows of --validate fails the call on every node. Collective. */
bool app_train_validated(App *app, const RubatoTask *task, uint64_t n_rows, const AppModel *model,
                         AppMeasureFunc measure, void *user_data, GError **error);

#endif
