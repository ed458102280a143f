/* Keys from words.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_FORMATS_TEXT_HASH_H
#define RUBATO_IO_DATA_FORMATS_TEXT_HASH_H

#include <rubato/types.h>

/* The upper n_bits (0 to 64; all where 0) of the XXH3 of a text; another seed is another hash. The
 * same on every machine and in every run. */
RubatoKey text_hash(const char *text, size_t size, uint64_t seed, uint32_t n_bits);

#endif
