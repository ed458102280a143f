/* The blocks of a file, read and checked before somebody asks for them. If the file is long,
 * threads of its own do so, some blocks ahead; who asks helps them in place of waiting.
 *
 * Each block is checked: that its head can be one, its checksum, and what it unpacks to. Whether
 * the end fits what came before is for who asks.
 *
 * Threads: one at a time asks. */
#ifndef RUBATO_IO_STORE_BLOCK_FETCH_H
#define RUBATO_IO_STORE_BLOCK_FETCH_H

#include "io/store/block_layout.h"

/* The most threads that read a file, beside who asks. */
enum { BLOCK_FETCH_THREADS = 3 };

typedef struct BlockFetch BlockFetch;

/* A block as the stream has it; of the end: its BlockEnd. */
typedef struct {
    BlockHead head;
    uint64_t offset; /* in the file */
    const unsigned char *bytes;
} FetchedBlock;

/* Opens a file, which must have n_bytes; as many threads as there are processors for read it.
 * (transfer full) */
BlockFetch *block_fetch_new(const char *path, uint64_t seed, uint64_t n_bytes, GError **error);

/* … with so many threads, if the file is long. */
BlockFetch *block_fetch_new_with(const char *path, uint64_t seed, uint64_t n_bytes,
                                 uint32_t n_threads, GError **error);

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
