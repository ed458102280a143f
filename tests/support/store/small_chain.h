/* A small chain of snapshots, written without an engine: the first has all rows, and each link
 * behind it those that changed. There are rows of any keys with state, of which some go; rows of
 * different lengths; and rows of consecutive keys in two parts, of which one is whole in one link.
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_STORE_SMALL_CHAIN_H
#define TESTS_SUPPORT_STORE_SMALL_CHAIN_H

#include "io/store/snapshot_folder.h"

/* The most links behind the first. */
enum { SMALL_CHAIN_LINKS = 3 };

/* Writes link number `link`, 0 for the first, on the newest snapshot in the directory, as an engine
 * does. Values depend on the link alone. After an error what was written is removed. seed: of the
 * checksums. */
bool small_chain_write(const char *directory, unsigned link, uint64_t seed, RubatoPacking packing,
                       uint64_t *number, GError **error);

/* Checks that a snapshot has the rows as they were at that link; fails the case if not. */
void small_chain_check(const char *directory, uint64_t number, unsigned link);

#endif
