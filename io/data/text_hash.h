/* Keys from words.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_TEXT_HASH_H
#define RUBATO_IO_DATA_TEXT_HASH_H

#include <rubato/data.h>

/* The upper n_bits (64 where 0) of the XXH3 of a text; another seed is another hash. The same on every
 * machine and in every run. */
RubatoKey text_hash(const char *text, size_t size, uint64_t seed, uint32_t n_bits);

/* Whether a spec's hash_bits can be kept of a hash. */
bool text_hash_check_bits(const RubatoDataSpec *spec, GError **error);

#endif
