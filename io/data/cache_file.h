/* Cache files: the parsed blocks of one input, to be read into memory.
 *
 * A file holds blocks as images (data_block.h), each with its checksum, and says from which input
 * and by which options they were made. It appears under its name whole or not at all, and is never
 * changed. Byte order and layout are the machine's, so a file from another kind of machine does not
 * fit.
 *
 * Threads: any; one CacheFile may be read by any number at once. */
#ifndef RUBATO_IO_DATA_CACHE_FILE_H
#define RUBATO_IO_DATA_CACHE_FILE_H

#include "io/data/data_block.h"

/* What a cache must agree with. */
typedef struct {
    uint64_t input_bytes;
    int64_t input_modified_ns;
    uint64_t options; /* a digest of all else that decides what the blocks hold */
} CacheKey;

typedef struct CacheFile CacheFile;

/* NULL if there is none that fits, for any reason. Blocks stay in memory, see cache_file_block,
 * unless the file is larger than resident_bytes. (transfer full) */
CacheFile *cache_file_open(const char *path, const CacheKey *key, uint64_t resident_bytes);

/* Blocks may stay longer. NULL is allowed. */
void cache_file_unref(CacheFile *cache);

const char *cache_file_path(const CacheFile *cache);
uint64_t cache_file_n_blocks(const CacheFile *cache);

/* Of all blocks. */
const RubatoDataSummary *cache_file_summary(const CacheFile *cache);

/* A block, number < n_blocks; NULL if it is damaged, or the file has become shorter, or there is
 * no memory. It stays in memory if that is asked for, or if it was read before. (transfer full) */
DataBlock *cache_file_block(CacheFile *cache, uint64_t number, DatasetKeep keep);

#endif
