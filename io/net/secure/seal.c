/* Tags and encryption of the pieces of a connection.
 *
 * A MAC is the tag of the cipher, with all bytes as additional data and nothing encrypted. So one
 * construction serves both; its nonce is the number of the piece. A key is used in one direction of
 * one connection, so no nonce is used twice. */
#include "io/net/secure/seal.h"

#include <sodium.h>
#include <string.h>

#include "io/net/link/checksum.h"
#include "io/net/link/wire.h"

G_STATIC_ASSERT(AES_GCM_KEY_BYTES == SEAL_KEY_BYTES);
G_STATIC_ASSERT(AES_GCM_TAG_BYTES == SEAL_TAG_BYTES);
G_STATIC_ASSERT(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == SEAL_KEY_BYTES);
G_STATIC_ASSERT(crypto_aead_xchacha20poly1305_ietf_ABYTES == SEAL_TAG_BYTES);

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES /* the longer one */

static bool has_cipher(const Seal *seal)
{
    return seal->protection == PROTECTION_MAC || seal->protection == PROTECTION_ENCRYPT;
}

bool seal_has_aes(void)
{
    return aes_gcm_is_available();
}

void seal_init(Seal *seal, Protection protection, SealCipher cipher,
               const uint8_t key[SEAL_KEY_BYTES])
{
    memset(seal, 0, sizeof *seal);
    seal->protection = protection;
    seal->cipher = cipher;
    memcpy(seal->key, key, SEAL_KEY_BYTES);
    if (cipher == SEAL_AES256_GCM && has_cipher(seal))
        aes_gcm_prepare(&seal->prepared, key);
}

void seal_clear(Seal *seal)
{
    sodium_memzero(seal, sizeof *seal);
}

void seal_skip(Seal *seal)
{
    seal->n_pieces++;
}

/* Writes the number of the next piece as a nonce, and counts the piece. */
static void take_nonce(Seal *seal, uint8_t nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    wire_store_u64(nonce, seal->n_pieces++);
}

/* The tag of the next piece if no cipher makes it: its number, and a checksum if one is asked for.
 * Its last n_rest bytes, which may be none, lie elsewhere. */
static void take_plain_tag(Seal *seal, const uint8_t *bytes, size_t size, const uint8_t *rest,
                           size_t n_rest, uint8_t *tag)
{
    const uint64_t start = wire_load_u64(seal->key) + seal->n_pieces++;

    memset(tag, 0, SEAL_TAG_BYTES);
    wire_store_u64(tag, seal->protection == PROTECTION_NONE ? start
                        : n_rest == 0                       ? checksum(bytes, size, start)
                                      : checksum_apart(bytes, size, rest, n_rest, start));
}

static bool open_plain(Seal *seal, const uint8_t *bytes, size_t size, const uint8_t *rest,
                       size_t n_rest, const uint8_t *tag)
{
    uint8_t due[SEAL_TAG_BYTES];

    take_plain_tag(seal, bytes, size, rest, n_rest, due);
    return memcmp(due, tag, SEAL_TAG_BYTES) == 0;
}

void seal_close(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *to,
                uint8_t tag[SEAL_TAG_BYTES])
{
    const bool encrypts = seal->protection == PROTECTION_ENCRYPT;
    uint8_t nonce[NONCE_BYTES], none = 0;
    const AesGcmPiece piece = { .nonce = nonce,
                                .more = encrypts ? &none : bytes,
                                .n_more = encrypts ? 0 : size,
                                .n_bytes = encrypts ? size : 0 };
    const uint8_t *const from = encrypts ? bytes : &none;

    if (!has_cipher(seal)) {
        take_plain_tag(seal, bytes, size, NULL, 0, tag);
        return;
    }
    take_nonce(seal, nonce);
    if (!encrypts)
        to = &none;
    if (seal->cipher == SEAL_AES256_GCM)
        aes_gcm_seal(&seal->prepared, &piece, from, to, tag);
    else
        crypto_aead_xchacha20poly1305_ietf_encrypt_detached(
            to, tag, NULL, from, piece.n_bytes, piece.more, piece.n_more, NULL, nonce, seal->key);
}

bool seal_open(Seal *seal, uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES])
{
    const bool encrypts = seal->protection == PROTECTION_ENCRYPT;
    uint8_t nonce[NONCE_BYTES], none = 0;
    const AesGcmPiece piece = { .nonce = nonce,
                                .more = encrypts ? &none : bytes,
                                .n_more = encrypts ? 0 : size,
                                .n_bytes = encrypts ? size : 0 };
    uint8_t *const hidden = encrypts ? bytes : &none; /* never NULL: libsodium declares it so */

    if (!has_cipher(seal))
        return open_plain(seal, bytes, size, NULL, 0, tag);
    take_nonce(seal, nonce);
    if (seal->cipher == SEAL_AES256_GCM)
        return aes_gcm_open(&seal->prepared, &piece, hidden, tag);
    return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(hidden, NULL, hidden, piece.n_bytes,
                                                               tag, piece.more, piece.n_more, nonce,
                                                               seal->key) == 0;
}

/* ---- in two places ---- */

bool seal_opens_apart(const Seal *seal)
{
    return !has_cipher(seal) || (seal->cipher == SEAL_AES256_GCM && aes_gcm_has_steps());
}

/* The tag of a piece that is covered by it and not encrypted. */
static void take_mac(const Seal *seal, const uint8_t *nonce, const uint8_t *head, size_t n_head,
                     const uint8_t *rest, size_t n_rest, uint8_t tag[SEAL_TAG_BYTES])
{
    const AesGcmKey *const key = &seal->prepared;
    AesGcmSteps steps;

    aes_gcm_begin_mac(key, &steps, nonce);
    aes_gcm_mac_step(key, &steps, head, n_head);
    aes_gcm_mac_step(key, &steps, rest, n_rest);
    aes_gcm_end_mac(key, &steps, tag);
    sodium_memzero(&steps, sizeof steps);
}

void seal_close_apart(Seal *seal, const uint8_t *head, size_t n_head, const uint8_t *rest,
                      size_t n_rest, uint8_t tag[SEAL_TAG_BYTES])
{
    uint8_t nonce[NONCE_BYTES];

    if (!has_cipher(seal)) {
        take_plain_tag(seal, head, n_head, rest, n_rest, tag);
        return;
    }
    take_nonce(seal, nonce);
    take_mac(seal, nonce, head, n_head, rest, n_rest, tag);
}

bool seal_open_apart(Seal *seal, const SealParts *parts, const uint8_t tag[SEAL_TAG_BYTES])
{
    const AesGcmKey *const key = &seal->prepared;
    uint8_t nonce[NONCE_BYTES], due[SEAL_TAG_BYTES];
    AesGcmSteps steps;

    if (!has_cipher(seal))
        return open_plain(seal, parts->head, parts->n_head, parts->rest, parts->n_rest, tag);
    take_nonce(seal, nonce);
    if (seal->protection == PROTECTION_ENCRYPT) {
        aes_gcm_begin(key, &steps, nonce);
        aes_gcm_open_step(key, &steps, parts->head, parts->n_head);
        aes_gcm_open_step(key, &steps, parts->rest, parts->n_rest);
        aes_gcm_end(key, &steps, due);
        sodium_memzero(&steps, sizeof steps);
    } else {
        take_mac(seal, nonce, parts->head, parts->n_head, parts->rest, parts->n_rest, due);
    }
    return sodium_memcmp(due, tag, SEAL_TAG_BYTES) == 0;
}

/* ---- in steps ---- */

bool seal_has_steps(const Seal *seal)
{
    return seal->protection == PROTECTION_ENCRYPT && seal->cipher == SEAL_AES256_GCM &&
           aes_gcm_has_steps();
}

void seal_begin(Seal *seal, SealMark *mark)
{
    uint8_t nonce[NONCE_BYTES];

    mark->is_set = true;
    mark->number = seal->n_pieces;
    memcpy(mark->key, seal->key, SEAL_KEY_BYTES);
    take_nonce(seal, nonce);
    aes_gcm_begin(&seal->prepared, &seal->steps, nonce);
}

void seal_step(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *to)
{
    aes_gcm_seal_step(&seal->prepared, &seal->steps, bytes, to, size);
}

void seal_end(Seal *seal, uint8_t tag[SEAL_TAG_BYTES])
{
    aes_gcm_end(&seal->prepared, &seal->steps, tag);
}

void seal_undo(SealMark *mark, uint8_t *bytes, size_t size)
{
    uint8_t nonce[NONCE_BYTES] = { 0 };
    AesGcmSteps steps;
    AesGcmKey key;

    wire_store_u64(nonce, mark->number);
    aes_gcm_prepare(&key, mark->key);
    aes_gcm_begin(&key, &steps, nonce);
    aes_gcm_open_step(&key, &steps, bytes, size);
    sodium_memzero(&key, sizeof key);
    sodium_memzero(&steps, sizeof steps);
    seal_mark_clear(mark);
}

void seal_mark_clear(SealMark *mark)
{
    sodium_memzero(mark, sizeof *mark);
}
