/* What a cache file consists of.
 *
 *   header   says whose cache it is, where the index lies, what all blocks hold together
 *   blocks   each at a multiple of 8 bytes
 *   index    offset, size and checksum of each block
 *
 * The header's checksum is over itself and the index. Checksums are XXH3 (io/net/link/checksum.h).
 *
 * Threads: any; the function depends on its arguments only. */
#ifndef RUBATO_IO_DATA_CACHE_LAYOUT_H
#define RUBATO_IO_DATA_CACHE_LAYOUT_H

#include "io/data/cache_file.h"

#define CACHE_MAGIC "rubatoDC"
#define CACHE_VERSION 2u /* since users and items of ratings have keys of their own */
#define CACHE_BYTE_ORDER_MARK 0x01020304u

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t head_bytes; /* of a block */
    CacheKey key;
    uint64_t n_blocks;
    uint64_t index_offset;
    uint64_t file_bytes;
    RubatoDataSummary summary;
    uint64_t checksum; /* last: of all before it, and of the index */
} CacheHeader;

typedef struct {
    uint64_t offset, size, checksum;
} CacheEntry;

/* The header's checksum. */
uint64_t cache_layout_checksum(const CacheHeader *header, const CacheEntry *index, uint64_t n);

#endif
