/* Makes cache files (cache_file.h).
 *
 * Threads: cache_writer_add may be called by any number at once, the other calls on a writer by
 * one. */
#ifndef RUBATO_IO_DATA_CACHE_WRITER_H
#define RUBATO_IO_DATA_CACHE_WRITER_H

#include "io/data/cache_file.h"

typedef struct CacheWriter CacheWriter;

/* RUBATO_ERROR_IO. (transfer full) */
CacheWriter *cache_writer_new(const char *path, const CacheKey *key, GError **error);

/* Adds a block; each number once, in any order. */
bool cache_writer_add(CacheWriter *writer, uint64_t number, const DataBlock *block, GError **error);

/* Writes the rest and gives the file its name. The blocks 0 .. n_blocks - 1 have been added. */
bool cache_writer_finish(CacheWriter *writer, uint64_t n_blocks, GError **error);

/* Removes what was not finished. NULL is allowed. */
void cache_writer_free(CacheWriter *writer);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(CacheWriter, cache_writer_free)

#endif
