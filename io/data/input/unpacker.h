/* Unpacks a stream of bytes, gzip or zstd: packed bytes in, unpacked ones out.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_DATA_INPUT_UNPACKER_H
#define RUBATO_IO_DATA_INPUT_UNPACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Unpacker Unpacker;

typedef enum {
    UNPACKER_GOES_ON, /* it has used all the input, or filled the output */
    UNPACKER_DAMAGED, /* unpacker_fault says what is wrong */
    UNPACKER_NO_MEMORY,
} UnpackerStatus;

/* Bytes that tell the packing. */
#define UNPACKER_MAGIC_BYTES 4

typedef struct {
    const uint8_t *in;
    size_t in_size;
    uint8_t *out;
    size_t out_size;
} UnpackerBuffers;

/* Sees from the first bytes of a stream how it is packed, and makes an unpacker for it; *unpacker
 * is NULL if it is not packed. False if there is no memory. (transfer full) */
bool unpacker_new(const uint8_t *head, size_t size, Unpacker **unpacker);

/* NULL is allowed. */
void unpacker_free(Unpacker *unpacker);

/* "gzip". (transfer none) */
const char *unpacker_name(const Unpacker *unpacker);

/* No more bytes than this come out of one. */
uint64_t unpacker_ratio_max(const Unpacker *unpacker);

/* Moves both buffers on by what it has used and made. */
UnpackerStatus unpacker_run(Unpacker *unpacker, UnpackerBuffers *buffers);

/* Whether the input may end here. */
bool unpacker_is_whole(const Unpacker *unpacker);

/* (transfer none) */
const char *unpacker_fault(const Unpacker *unpacker);

#endif
