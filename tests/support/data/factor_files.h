/* Files of generated rows to train and to test on, and the quality of the model that generated
 * them.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_DATA_FACTOR_FILES_H
#define TESTS_SUPPORT_DATA_FACTOR_FILES_H

#include "tests/support/data/factor_rows.h"

typedef struct {
    char *train, *test; /* paths */
    double true_auc;    /* of the test rows; NaN for ratings */
} FactorFiles;

/* Writes DIR/train-SUFFIX and DIR/test-SUFFIX. False if one of them cannot be written; *files must
 * still be cleared. */
bool factor_files_write(FactorFiles *files, const FactorRows *spec, const char *dir,
                        const char *suffix, size_t n_train, size_t n_test);
void factor_files_clear(FactorFiles *files);

#endif
