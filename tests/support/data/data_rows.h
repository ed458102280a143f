/* Files of numbered rows, and counts of how often each row was read.
 *
 * Row i depends on i alone and has the label i. So a reader of a row can tell which row it is and
 * whether it is complete.
 *
 * Threads: any; counts only grow. */
#ifndef TESTS_SUPPORT_DATA_DATA_ROWS_H
#define TESTS_SUPPORT_DATA_DATA_ROWS_H

#include <rubato/data.h>
#include <stdatomic.h>

typedef enum {
    ROWS_PLAIN,
    ROWS_GZIP,
    ROWS_ZSTD,
    ROWS_N_PACKINGS,
} RowsPacking;

/* Writes the rows first .. first + n - 1 to dir/name, as libffm. Returns the path. (transfer
 * full) */
char *rows_write(const char *dir, const char *name, RowsPacking packing, uint32_t first,
                 uint32_t n);

/* Counts the rows of a batch. Checks the batch against rubato/data.h, and each row against its
 * number, which is below n_rows. Returns NULL, or what is wrong. (transfer none) */
const char *rows_count(const RubatoBatch *batch, _Atomic uint32_t *counts, uint32_t n_rows);

/* Whether each row was counted that often. Prints the first one that was not. */
bool rows_all_counted(_Atomic uint32_t *counts, uint32_t n_rows, uint32_t times);

#endif
