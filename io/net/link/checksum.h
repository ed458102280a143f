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

#endif
