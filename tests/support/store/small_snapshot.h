/* A small snapshot that has a bit of everything, written without an engine: rows of consecutive
 * keys in two parts, rows of any keys with state beside them, rows of different lengths, a tuned
 * hyper-parameter, names and a note that are no plain text.
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_STORE_SMALL_SNAPSHOT_H
#define TESTS_SUPPORT_STORE_SMALL_SNAPSHOT_H

#include "io/store/snapshot_folder.h"

#define SMALL_NOTE "epoch 3 of 4\n[100 %]"
#define SMALL_CLOCK 12 /* of the table "weights"; the others have none */

/* Writes one as an engine does; its values depend on `seed`. After an error what was written is
 * removed. */
bool small_snapshot_write(const char *directory, uint64_t seed, RubatoPacking packing,
                          uint64_t *number, GError **error);

/* The same, without waiting for the disk. */
bool small_snapshot_leave_to_kernel(const char *directory, uint64_t seed, uint64_t *number,
                                    GError **error);

/* Checks all that is in one; fails the case if something is wrong. */
void small_snapshot_check(const char *directory, uint64_t number, uint64_t seed);

/* Removes a folder with all that is below it. */
void remove_tree(const char *path);

#endif
