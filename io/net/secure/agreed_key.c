#include "io/net/secure/agreed_key.h"

#include <sodium.h>
#include <string.h>

void agreed_key_draw(uint8_t nonce[AGREED_KEY_BYTES])
{
    randombytes_buf(nonce, AGREED_KEY_BYTES);
}

void agreed_key_make(const RunSecret *secret, const char *label,
                     const uint8_t asked[AGREED_KEY_BYTES],
                     const uint8_t answered[AGREED_KEY_BYTES], uint8_t key[AGREED_KEY_BYTES])
{
    static const RunSecret none;
    crypto_generichash_state state;

    crypto_generichash_init(&state, (secret != NULL ? secret : &none)->bytes, RUN_SECRET_BYTES,
                            AGREED_KEY_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&state, asked, AGREED_KEY_BYTES);
    crypto_generichash_update(&state, answered, AGREED_KEY_BYTES);
    crypto_generichash_final(&state, key, AGREED_KEY_BYTES);
}
