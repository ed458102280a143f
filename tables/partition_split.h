/* Splitting a list of keys in two.
 *
 * Threads: any. The function depends on its arguments only. */
#ifndef RUBATO_TABLES_PARTITION_SPLIT_H
#define RUBATO_TABLES_PARTITION_SPLIT_H

#include <rubato/request.h>

/* So many entries behind its list partition_split() may write to. */
#define PARTITION_SPLIT_SPARE 16u

/* Writes the positions of the keys with key - first_key < bound to `below`, and those of the others
 * to `above`, both in their order. Returns how many are above. Each of the two has n +
 * PARTITION_SPLIT_SPARE entries; what is behind the positions in them is undefined. */
size_t partition_split(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                       uint32_t *below, uint32_t *above);

/* The same without AVX-512. */
size_t partition_split_narrow(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                              uint32_t *below, uint32_t *above);

/* The same for any processor. */
size_t partition_split_plain(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                             uint32_t *below, uint32_t *above);

#endif
