/* Hashes of words, by xxHash (Y. Collet, https://xxhash.com, XXH3 of 64 bits). Runs on the caller's
 * thread, keeps nothing. */
#include "io/data/text_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

RubatoKey text_hash(const char *text, size_t size, uint64_t seed, uint32_t n_bits)
{
    const uint64_t hash = XXH3_64bits_withSeed(text, size, seed);

    return n_bits == 0 || n_bits >= 64 ? hash : hash >> (64 - n_bits);
}

bool text_hash_check_bits(const RubatoDataSpec *spec, GError **error)
{
    if (spec->hash_bits <= 64)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "hash_bits is %u; a hash has 64: give 1 to 64, or 0 for all", spec->hash_bits);
    return false;
}
