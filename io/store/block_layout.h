/* What a block file consists of. For block_writer.c and block_reader.c.
 *
 * Threads: any; nothing changes. */
#ifndef RUBATO_IO_STORE_BLOCK_LAYOUT_H
#define RUBATO_IO_STORE_BLOCK_LAYOUT_H

#include "io/store/block_file.h"

/* Numbers are written as they are in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

#define BLOCK_MAGIC 0x314b4252u /* "RBK1" */

typedef enum {
    BLOCK_PLAIN,
    BLOCK_ZSTD,
    BLOCK_END,
} BlockKind;

/* The checksum is that of the members before it, and of the stored bytes. */
typedef struct {
    uint32_t magic;
    uint32_t kind;           /* BlockKind */
    uint32_t n_stored_bytes; /* after this head */
    uint32_t n_bytes;        /* of the stream */
    uint64_t checksum;
} BlockHead;

/* What is stored in the block that ends a file. */
typedef struct {
    uint64_t n_bytes; /* of the stream */
    uint64_t number;  /* the writer's */
} BlockEnd;

G_STATIC_ASSERT(sizeof(BlockHead) == 24 && sizeof(BlockEnd) == 16);

#endif
