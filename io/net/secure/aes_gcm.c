/* AES-256-GCM by one of two libraries. */
#include "io/net/secure/aes_gcm.h"

#include <sodium.h>
#include <stdlib.h>

#ifdef RUBATO_HAS_IPSEC_MB

#include <intel-ipsec-mb.h>
#include <pthread.h>

_Static_assert(sizeof(struct gcm_key_data) <= sizeof(AesGcmKey), "a key must fit");
_Static_assert(sizeof(struct gcm_context_data) <= sizeof(AesGcmSteps), "a context must fit");

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

bool aes_gcm_has_steps(void)
{
    return true;
}

static struct gcm_context_data *context_of(AesGcmSteps *steps)
{
    return (struct gcm_context_data *)(void *)steps->bytes;
}

void aes_gcm_begin(const AesGcmKey *key, AesGcmSteps *steps,
                   const uint8_t nonce[AES_GCM_NONCE_BYTES])
{
    static const uint8_t none = 0;

    IMB_AES256_GCM_INIT(functions, inside(key), context_of(steps), nonce, &none, 0);
}

void aes_gcm_seal_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *from, uint8_t *to,
                       size_t n_bytes)
{
    IMB_AES256_GCM_ENC_UPDATE(functions, inside(key), context_of(steps), to, from, n_bytes);
}

void aes_gcm_open_step(const AesGcmKey *key, AesGcmSteps *steps, uint8_t *bytes, size_t n_bytes)
{
    IMB_AES256_GCM_DEC_UPDATE(functions, inside(key), context_of(steps), bytes, bytes, n_bytes);
}

void aes_gcm_end(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES])
{
    /* the same for encrypted and decrypted bytes */
    IMB_AES256_GCM_ENC_FINALIZE(functions, inside(key), context_of(steps), tag, AES_GCM_TAG_BYTES);
}

void aes_gcm_begin_mac(const AesGcmKey *key, AesGcmSteps *steps,
                       const uint8_t nonce[AES_GCM_NONCE_BYTES])
{
    IMB_AES256_GMAC_INIT(functions, inside(key), context_of(steps), nonce, AES_GCM_NONCE_BYTES);
}

void aes_gcm_mac_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *bytes,
                      size_t n_bytes)
{
    IMB_AES256_GMAC_UPDATE(functions, inside(key), context_of(steps), bytes, n_bytes);
}

void aes_gcm_end_mac(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES])
{
    IMB_AES256_GMAC_FINALIZE(functions, inside(key), context_of(steps), tag, AES_GCM_TAG_BYTES);
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

bool aes_gcm_has_steps(void)
{
    return false;
}

void aes_gcm_begin(const AesGcmKey *key, AesGcmSteps *steps,
                   const uint8_t nonce[AES_GCM_NONCE_BYTES])
{
    (void)key;
    (void)steps;
    (void)nonce;
    abort();
}

void aes_gcm_seal_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *from, uint8_t *to,
                       size_t n_bytes)
{
    (void)key;
    (void)steps;
    (void)from;
    (void)to;
    (void)n_bytes;
    abort();
}

void aes_gcm_open_step(const AesGcmKey *key, AesGcmSteps *steps, uint8_t *bytes, size_t n_bytes)
{
    (void)key;
    (void)steps;
    (void)bytes;
    (void)n_bytes;
    abort();
}

void aes_gcm_end(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES])
{
    (void)key;
    (void)steps;
    (void)tag;
    abort();
}

void aes_gcm_begin_mac(const AesGcmKey *key, AesGcmSteps *steps,
                       const uint8_t nonce[AES_GCM_NONCE_BYTES])
{
    (void)key;
    (void)steps;
    (void)nonce;
    abort();
}

void aes_gcm_mac_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *bytes,
                      size_t n_bytes)
{
    (void)key;
    (void)steps;
    (void)bytes;
    (void)n_bytes;
    abort();
}

void aes_gcm_end_mac(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES])
{
    (void)key;
    (void)steps;
    (void)tag;
    abort();
}

#endif
