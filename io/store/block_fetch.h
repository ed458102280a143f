/* The blocks of a file, read and checked before somebody asks for them. If the file is long, a
 * thread of its own does so, some blocks ahead; who asks helps it in place of waiting.
 *
 * Each block is checked: that its head can be one, its checksum, and what it unpacks to. Whether
 * the end fits what came before is for who asks.
 *
 * Threads: one at a time asks. */
#ifndef RUBATO_IO_STORE_BLOCK_FETCH_H
#define RUBATO_IO_STORE_BLOCK_FETCH_H

#include "io/store/block_layout.h"

typedef struct BlockFetch BlockFetch;

/* A block as the stream has it; of the end: its BlockEnd. */
typedef struct {
    BlockHead head;
    uint64_t offset; /* in the file */
    const unsigned char *bytes;
} FetchedBlock;

/* Opens a file, which must have n_bytes. (transfer full) */
BlockFetch *block_fetch_new(const char *path, uint64_t seed, uint64_t n_bytes, GError **error);

/* The next block, which is valid until the next call. None follows the end, or an error. */
bool block_fetch_next(BlockFetch *fetch, FetchedBlock *block, GError **error);

/* NULL is allowed. */
void block_fetch_free(BlockFetch *fetch);

/* What is wrong with a head; NULL if nothing is. */
const char *block_head_fault(const BlockHead *head);

/* RUBATO_ERROR_FORMAT: the block at that byte is damaged. */
bool block_fail_at(const char *path, uint64_t offset, GError **error, const char *what);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(BlockFetch, block_fetch_free)

#endif
