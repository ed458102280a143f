/* Who learns from which ratings, and when.
 *
 * Each user belongs to one worker, and each item to one block; there are as many blocks as workers.
 * In a stratum each worker learns the ratings of its users and of one block of items, each worker
 * another block. So no two workers need the same row at the same time (R. Gemulla and others:
 * Large-scale matrix factorization with distributed stochastic gradient descent, KDD 2011). In an
 * epoch each worker goes through all blocks.
 *
 * Every node reads all ratings, once, and comes to the same blocks; it keeps those of its own
 * workers. With RUBATO_SPLIT_BY_KEY each of its workers would read them all, and nobody would know
 * how many ratings the items of the others' users have, by which blocks are made even.
 *
 * Threads: one at a time; any that only read. */
#ifndef RUBATO_APPS_MF_MF_BLOCKS_H
#define RUBATO_APPS_MF_MF_BLOCKS_H

#include "apps/mf/mf_model.h"

/* A worker's ratings, by block. MfRating.user is a place in users, .item one in the block's
 * items. */
typedef struct {
    RubatoKey *users; /* n_users, ascending */
    size_t n_users;
    MfRating *ratings;
    size_t *starts; /* n_blocks + 1: where the ratings of a block begin */
} MfShare;

typedef struct {
    uint32_t n_blocks;
    RubatoKey **items; /* of each block, ascending */
    size_t *n_items;
    MfShare *shares; /* n_shares: of this node's workers */
    uint32_t n_shares;
    double mean; /* of all ratings */
} MfBlocks;

/* Reads the ratings, rows of a user and an item. n_workers: of the task; the node's have the ranks
 * first .. first + n_own - 1. seed: of the order of ratings. RUBATO_ERROR_FORMAT if a row is
 * something else, or the same key is a user and an item; RUBATO_ERROR_MEMORY. If it fails, *blocks
 * must still be cleared. */
bool mf_blocks_read(MfBlocks *blocks, RubatoDataset *rows, uint32_t n_workers, uint32_t first,
                    uint32_t n_own, uint64_t seed, GError **error);

/* A zeroed one is allowed. */
void mf_blocks_clear(MfBlocks *blocks);

/* RUBATO_ERROR_FORMAT if a row of the batch is not a user and an item. */
bool mf_check_rows(const RubatoBatch *batch, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MfBlocks, mf_blocks_clear)

#endif
