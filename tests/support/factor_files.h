/* Files of made-up rows to train and to test on, and how good the model is that made them.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_FACTOR_FILES_H
#define TESTS_SUPPORT_FACTOR_FILES_H

#include "tests/support/factor_rows.h"

typedef struct {
    char *train, *test; /* paths */
    double true_auc;    /* of the test rows; no number for ratings */
} FactorFiles;

/* Writes DIR/train-SUFFIX and DIR/test-SUFFIX. Where one of them cannot be written, false; *files
 * is still to be cleared. */
bool factor_files_write(FactorFiles *files, const FactorRows *spec, const char *dir,
                        const char *suffix, size_t n_train, size_t n_test);
void factor_files_clear(FactorFiles *files);

#endif
