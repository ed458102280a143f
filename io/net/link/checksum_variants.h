/* The checksum compiled for the vectors of several processors. All of them give the same result;
 * only checksum.c chooses between them.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_LINK_CHECKSUM_VARIANTS_H
#define RUBATO_IO_NET_LINK_CHECKSUM_VARIANTS_H

#include <stddef.h>
#include <stdint.h>

/* For the processor for which the whole library is compiled. */
uint64_t checksum_plain(const void *bytes, size_t size, uint64_t seed);
uint64_t checksum_apart_plain(const void *head, size_t n_head, const void *rest, size_t n_rest,
                              uint64_t seed);
void checksum_add_plain(void *state, const void *bytes, size_t size);

/* If the compiler and the C library can find out at run time what the processor has. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CHECKSUM_HAS_VARIANTS 1
uint64_t checksum_avx2(const void *bytes, size_t size, uint64_t seed);
uint64_t checksum_apart_avx2(const void *head, size_t n_head, const void *rest, size_t n_rest,
                             uint64_t seed);
void checksum_add_avx2(void *state, const void *bytes, size_t size);
uint64_t checksum_avx512(const void *bytes, size_t size, uint64_t seed);
uint64_t checksum_apart_avx512(const void *head, size_t n_head, const void *rest, size_t n_rest,
                               uint64_t seed);
void checksum_add_avx512(void *state, const void *bytes, size_t size);
#else
#define CHECKSUM_HAS_VARIANTS 0
#endif

#endif
