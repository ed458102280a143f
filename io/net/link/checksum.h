/* A checksum of bytes, by XXH3 with 64 bits: fast, but no protection against an attacker who
 * changes them.
 *
 * Threads: any. The functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_LINK_CHECKSUM_H
#define RUBATO_IO_NET_LINK_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const void *bytes, size_t size, uint64_t seed);

/* The same of bytes in two places: those of the head come first. */
uint64_t checksum_apart(const void *head, size_t n_head, const void *rest, size_t n_rest,
                        uint64_t seed);

/* The same of bytes that come piece by piece: checksum_end gives what checksum would of all. */
typedef struct {
    _Alignas(64) unsigned char state[640]; /* of xxHash */
} ChecksumPieces;

void checksum_begin(ChecksumPieces *pieces, uint64_t seed);
void checksum_add(ChecksumPieces *pieces, const void *bytes, size_t size);
uint64_t checksum_end(const ChecksumPieces *pieces);

#endif
