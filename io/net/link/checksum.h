/* A checksum of bytes, by XXH3 with 64 bits: fast, but no protection against an attacker who
 * changes them.
 *
 * Threads: any. The function depends on its arguments only. */
#ifndef RUBATO_IO_NET_LINK_CHECKSUM_H
#define RUBATO_IO_NET_LINK_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const void *bytes, size_t size, uint64_t seed);

#endif
