/* A hash of keys. Somebody who does not know its seed cannot choose keys that collide.
 *
 * Keys come from training data, and the author of these data may choose them. For a fixed hash, an
 * author can find keys that collide. A fixed mixer after an exclusive or with a seed does not help:
 * some pairs of keys collide under every seed. So the hash is strongly universal: multiply-shift
 * (Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
 * arithmetic without primes", STACS 1996),
 *
 *     u = (a × key + b mod 2^128) / 2^64
 *
 * with a and b of 128 random bits each. Over the choice of a and b, the hashes of two different
 * keys are independent and uniform: no bit of the one hash tells anything about the other. So two
 * keys that were chosen without the seed agree in any given bits as seldom as random ones do.
 * Multiply-shift keeps the order of evenly spaced keys: the u of 0, d, 2d, … grow by even steps. A
 * last step breaks this order. It is a bijection, so the hashes stay independent and uniform.
 *
 * The seed has 64 bits; a generator draws a and b from it. The claim above then holds as long as
 * nobody can tell the generator's output from random bits.
 *
 * Threads: any; a KeyHash is only read. */
#ifndef RUBATO_IO_KEY_HASH_H
#define RUBATO_IO_KEY_HASH_H

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
