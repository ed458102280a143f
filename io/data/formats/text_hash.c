/* Hashes of words, by xxHash (Y. Collet, https://xxhash.com, XXH3 of 64 bits). Runs on the caller's
 * thread, keeps nothing. */
#include "io/data/formats/text_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

RubatoKey text_hash(const char *text, size_t size, uint64_t seed, uint32_t n_bits)
{
    const uint64_t hash = XXH3_64bits_withSeed(text, size, seed);

    return n_bits == 0 ? hash : hash >> (64 - n_bits);
}
