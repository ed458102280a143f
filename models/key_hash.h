/* A hash of keys that nobody can make collide who does not know its seed.
 *
 * Keys come from training data, and whoever writes those may choose them. Against a fixed hash he
 * finds keys that meet in one place; exclusive or with a seed before a fixed mixer does not help
 * enough, for some pairs meet whatever the seed is. So the hash is strongly universal:
 * multiply-shift (Dietzfelbinger, "Universal hashing and k-wise independent random variables via
 * integer arithmetic without primes", STACS 1996),
 *
 *     u = (a × key + b mod 2^128) / 2^64
 *
 * with a and b of 128 random bits each. Over the choice of a and b, the hashes of any two different
 * keys are independent and even: every bit, and every group of bits, of the one tells nothing of
 * the other. Two keys that were chosen without the seed thus meet in any given bits as seldom as
 * random ones do. What multiply-shift keeps is order among keys that are evenly spaced: u of 0, d,
 * 2d, … is a sequence of even steps. A last step breaks that; it is a bijection, so what was
 * independent and even stays so.
 *
 * The seed has 64 bits, from which a and b are drawn with a generator. The claim above then holds
 * as far as its output cannot be told from random bits by somebody who sees neither.
 *
 * Threads: any; a KeyHash is only read. */
#ifndef RUBATO_MODELS_KEY_HASH_H
#define RUBATO_MODELS_KEY_HASH_H

#include <rubato/mix.h>
#include <rubato/types.h>

typedef struct {
    uint64_t factor_low, factor_high; /* a */
    uint64_t offset_low, offset_high; /* b */
} KeyHash;

/* The i-th of some 64 bits that follow from a seed. */
static inline uint64_t key_hash_draw(uint64_t seed, uint64_t i)
{
    return rubato_mix64(rubato_mix64(seed) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static inline KeyHash key_hash_make(uint64_t seed)
{
    return (KeyHash){ .factor_low = key_hash_draw(seed, 0),
                      .factor_high = key_hash_draw(seed, 1),
                      .offset_low = key_hash_draw(seed, 2),
                      .offset_high = key_hash_draw(seed, 3) };
}

static inline uint64_t key_hash(const KeyHash *hash, RubatoKey key)
{
    const unsigned __int128 low = (unsigned __int128)key * hash->factor_low + hash->offset_low;
    const uint64_t sum = (uint64_t)(low >> 64) + key * hash->factor_high + hash->offset_high;

    return (sum ^ sum >> 32) * UINT64_C(0x9fb21c651e98df25);
}

#endif
