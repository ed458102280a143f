/* Files of numbered rows, and the account of who has read which.
 *
 * Row i follows from i alone and has it as its label, so that whoever has read a row can tell which
 * it is and whether it is whole.
 *
 * Threads: any; an account is only ever counted up. */
#ifndef TESTS_SUPPORT_DATA_ROWS_H
#define TESTS_SUPPORT_DATA_ROWS_H

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

/* Counts the rows of a batch, and checks it against what its header promises and its rows against
 * their numbers, which are below n_rows. NULL, or what is wrong. (transfer none) */
const char *rows_count(const RubatoBatch *batch, _Atomic uint32_t *counts, uint32_t n_rows);

/* Whether each row has been counted that often; says of the first that was not. */
bool rows_all_counted(_Atomic uint32_t *counts, uint32_t n_rows, uint32_t times);

#endif
