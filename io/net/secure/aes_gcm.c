/* AES-256-GCM by one of two libraries. */
#include "io/net/secure/aes_gcm.h"

#include <sodium.h>

#ifdef RUBATO_HAS_IPSEC_MB

#include <intel-ipsec-mb.h>
#include <pthread.h>

_Static_assert(sizeof(struct gcm_key_data) <= sizeof(AesGcmKey), "a key must fit");

/* The library's functions for this processor. They are looked up once and never change. The library
 * keeps queues of jobs there too. The calls below do not use them, so threads may share the
 * struct. */
static IMB_MGR *functions;
static pthread_once_t functions_once = PTHREAD_ONCE_INIT;

static void find_functions(void)
{
    IMB_MGR *const found = alloc_mb_mgr(0);

    if (found == NULL)
        return;
    init_mb_mgr_auto(found, NULL);
    if (imb_get_errno(found) == 0)
        functions = found;
    else
        free_mb_mgr(found);
}

bool aes_gcm_is_available(void)
{
    pthread_once(&functions_once, find_functions);
    return functions != NULL && crypto_aead_aes256gcm_is_available() != 0;
}

static const struct gcm_key_data *inside(const AesGcmKey *key)
{
    return (const struct gcm_key_data *)(const void *)key->bytes;
}

void aes_gcm_prepare(AesGcmKey *key, const uint8_t bytes[AES_GCM_KEY_BYTES])
{
    pthread_once(&functions_once, find_functions);
    IMB_AES256_GCM_PRE(functions, bytes, (struct gcm_key_data *)(void *)key->bytes);
}

void aes_gcm_seal(const AesGcmKey *key, const AesGcmPiece *piece, const uint8_t *from, uint8_t *to,
                  uint8_t tag[AES_GCM_TAG_BYTES])
{
    struct gcm_context_data context;

    IMB_AES256_GCM_ENC(functions, inside(key), &context, to, from, piece->n_bytes, piece->nonce,
                       piece->more, piece->n_more, tag, AES_GCM_TAG_BYTES);
}

bool aes_gcm_open(const AesGcmKey *key, const AesGcmPiece *piece, uint8_t *bytes,
                  const uint8_t tag[AES_GCM_TAG_BYTES])
{
    struct gcm_context_data context;
    uint8_t due[AES_GCM_TAG_BYTES];

    IMB_AES256_GCM_DEC(functions, inside(key), &context, bytes, bytes, piece->n_bytes, piece->nonce,
                       piece->more, piece->n_more, due, AES_GCM_TAG_BYTES);
    return sodium_memcmp(due, tag, sizeof due) == 0;
}

#else

_Static_assert(sizeof(crypto_aead_aes256gcm_state) <= sizeof(AesGcmKey), "a key must fit");

bool aes_gcm_is_available(void)
{
    return crypto_aead_aes256gcm_is_available() != 0;
}

static const crypto_aead_aes256gcm_state *inside(const AesGcmKey *key)
{
    return (const crypto_aead_aes256gcm_state *)(const void *)key->bytes;
}

void aes_gcm_prepare(AesGcmKey *key, const uint8_t bytes[AES_GCM_KEY_BYTES])
{
    (void)crypto_aead_aes256gcm_beforenm((crypto_aead_aes256gcm_state *)(void *)key->bytes, bytes);
}

void aes_gcm_seal(const AesGcmKey *key, const AesGcmPiece *piece, const uint8_t *from, uint8_t *to,
                  uint8_t tag[AES_GCM_TAG_BYTES])
{
    (void)crypto_aead_aes256gcm_encrypt_detached_afternm(to, tag, NULL, from, piece->n_bytes,
                                                         piece->more, piece->n_more, NULL,
                                                         piece->nonce, inside(key));
}

bool aes_gcm_open(const AesGcmKey *key, const AesGcmPiece *piece, uint8_t *bytes,
                  const uint8_t tag[AES_GCM_TAG_BYTES])
{
    return crypto_aead_aes256gcm_decrypt_detached_afternm(bytes, NULL, bytes, piece->n_bytes, tag,
                                                          piece->more, piece->n_more, piece->nonce,
                                                          inside(key)) == 0;
}

#endif
