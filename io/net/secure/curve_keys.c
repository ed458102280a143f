/* Derives key pairs from the secret of a run: a seed by libsodium's key derivation (BLAKE2b), and
 * the pair (X25519) from the seed. */
#include "io/net/secure/curve_keys.h"

#include <sodium.h>

G_STATIC_ASSERT(RUN_SECRET_BYTES == crypto_kdf_KEYBYTES);
G_STATIC_ASSERT(CURVE_KEY_BYTES == crypto_box_PUBLICKEYBYTES);
G_STATIC_ASSERT(CURVE_KEY_BYTES == crypto_box_SECRETKEYBYTES);

/* The context of the seeds' derivation. No other use of the secret has the same. */
static const char purpose[crypto_kdf_CONTEXTBYTES] = { 'r', 'b', 't', 'o', 'C', 'U', 'R', 'V' };

void curve_keys_derive(const RunSecret *secret, CurveRole role, uint32_t node, CurveKeys *keys)
{
    const uint64_t number = (uint64_t)role << 32 | node;
    uint8_t seed[crypto_box_SEEDBYTES];

    (void)crypto_kdf_derive_from_key(seed, sizeof seed, number, purpose, secret->bytes);
    (void)crypto_box_seed_keypair(keys->public_key, keys->secret_key, seed);
    sodium_memzero(seed, sizeof seed);
}

void curve_keys_clear(CurveKeys *keys)
{
    sodium_memzero(keys, sizeof *keys);
}
