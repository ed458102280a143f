/* Tags and encryption of the pieces of a connection.
 *
 * A MAC is that of the cipher, with all bytes as additional data and nothing encrypted: so one
 * construction, whose nonce is the number of the piece, serves both. A key is used in one direction
 * of one connection, so no nonce ever comes twice. */
#include "io/net/secure/seal.h"

#include <sodium.h>
#include <string.h>

#include "io/net/link/checksum.h"
#include "io/net/link/wire.h"

G_STATIC_ASSERT(sizeof(crypto_aead_aes256gcm_state) <= sizeof(((Seal *)NULL)->prepared));
G_STATIC_ASSERT(crypto_aead_aes256gcm_KEYBYTES == SEAL_KEY_BYTES);
G_STATIC_ASSERT(crypto_aead_aes256gcm_ABYTES == SEAL_TAG_BYTES);
G_STATIC_ASSERT(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == SEAL_KEY_BYTES);
G_STATIC_ASSERT(crypto_aead_xchacha20poly1305_ietf_ABYTES == SEAL_TAG_BYTES);

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES /* the longer one */

bool seal_has_aes(void)
{
    return crypto_aead_aes256gcm_is_available() != 0;
}

void seal_init(Seal *seal, Protection protection, SealCipher cipher,
               const uint8_t key[SEAL_KEY_BYTES])
{
    memset(seal, 0, sizeof *seal);
    seal->protection = protection;
    seal->cipher = cipher;
    memcpy(seal->key, key, SEAL_KEY_BYTES);
    if (cipher == SEAL_AES256_GCM && protection != PROTECTION_CHECKSUM)
        crypto_aead_aes256gcm_beforenm((crypto_aead_aes256gcm_state *)(void *)seal->prepared, key);
}

void seal_clear(Seal *seal)
{
    sodium_memzero(seal, sizeof *seal);
}

void seal_skip(Seal *seal)
{
    seal->n_pieces++;
}

/* The number of the piece, which is counted by this. */
static void take_nonce(Seal *seal, uint8_t nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    wire_store_u64(nonce, seal->n_pieces++);
}

/* The checksum of the next piece, which its number is part of. */
static void take_checksum(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *tag)
{
    memset(tag, 0, SEAL_TAG_BYTES);
    wire_store_u64(tag, checksum(bytes, size, wire_load_u64(seal->key) + seal->n_pieces++));
}

void seal_close(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *to,
                uint8_t tag[SEAL_TAG_BYTES])
{
    const bool encrypts = seal->protection == PROTECTION_ENCRYPT;
    const uint8_t *const plain = encrypts ? bytes : NULL, *const more = encrypts ? NULL : bytes;
    const size_t plain_bytes = encrypts ? size : 0, more_bytes = encrypts ? 0 : size;
    uint8_t nonce[NONCE_BYTES], none;

    if (seal->protection == PROTECTION_CHECKSUM) {
        take_checksum(seal, bytes, size, tag);
        return;
    }
    take_nonce(seal, nonce);
    if (seal->cipher == SEAL_AES256_GCM)
        crypto_aead_aes256gcm_encrypt_detached_afternm(
            encrypts ? to : &none, tag, NULL, plain, plain_bytes, more, more_bytes, NULL, nonce,
            (const crypto_aead_aes256gcm_state *)(const void *)seal->prepared);
    else
        crypto_aead_xchacha20poly1305_ietf_encrypt_detached(encrypts ? to : &none, tag, NULL, plain,
                                                            plain_bytes, more, more_bytes, NULL,
                                                            nonce, seal->key);
}

bool seal_open(Seal *seal, uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES])
{
    const bool encrypts = seal->protection == PROTECTION_ENCRYPT;
    const uint8_t *const more = encrypts ? NULL : bytes;
    const size_t hidden_bytes = encrypts ? size : 0, more_bytes = encrypts ? 0 : size;
    uint8_t nonce[NONCE_BYTES], due[SEAL_TAG_BYTES], none = 0;
    uint8_t *const hidden = encrypts ? bytes : &none; /* never NULL: libsodium declares it so */

    if (seal->protection == PROTECTION_CHECKSUM) {
        take_checksum(seal, bytes, size, due);
        return memcmp(due, tag, SEAL_TAG_BYTES) == 0;
    }
    take_nonce(seal, nonce);
    if (seal->cipher == SEAL_AES256_GCM)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(
                   encrypts ? bytes : &none, NULL, hidden, hidden_bytes, tag, more, more_bytes,
                   nonce, (const crypto_aead_aes256gcm_state *)(const void *)seal->prepared) == 0;
    return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(encrypts ? bytes : &none, NULL,
                                                               hidden, hidden_bytes, tag, more,
                                                               more_bytes, nonce, seal->key) == 0;
}
