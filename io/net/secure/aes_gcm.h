/* AES-256-GCM (NIST SP 800-38D) by the fastest library that the build found: on x86-64 Intel's
 * Multi-Buffer Crypto library, otherwise libsodium. Both give the same bytes.
 *
 * Threads: any; several may use a prepared key at once while none writes to it. */
#ifndef RUBATO_IO_NET_SECURE_AES_GCM_H
#define RUBATO_IO_NET_SECURE_AES_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AES_GCM_KEY_BYTES 32
#define AES_GCM_NONCE_BYTES 12
#define AES_GCM_TAG_BYTES 16

/* A key with all that is computed from it alone. Plain bytes: it may be copied. */
typedef struct {
    _Alignas(64) uint8_t bytes[1024];
} AesGcmKey;

/* The parts of a piece: `more` is only covered by the tag, `plain` is also encrypted. Either may
 * have no bytes. */
typedef struct {
    const uint8_t *nonce; /* AES_GCM_NONCE_BYTES; never twice with one key */
    const uint8_t *more;
    size_t n_more;
    size_t n_bytes; /* that are encrypted */
} AesGcmPiece;

/* Whether this processor has the instructions. Without them nothing else here may be called. */
bool aes_gcm_is_available(void);

void aes_gcm_prepare(AesGcmKey *key, const uint8_t bytes[AES_GCM_KEY_BYTES]);

/* A piece that is encrypted or decrypted in steps, with nothing that the tag alone covers. Plain
 * bytes: it may be copied. */
typedef struct {
    _Alignas(16) uint8_t bytes[128];
} AesGcmSteps;

/* Whether the library can do it in steps; else none of aes_gcm_begin … aes_gcm_end_mac
 * may be called. */
bool aes_gcm_has_steps(void);

void aes_gcm_begin(const AesGcmKey *key, AesGcmSteps *steps,
                   const uint8_t nonce[AES_GCM_NONCE_BYTES]);

/* Encrypts the next n_bytes of the piece from `from` to `to`, which may be the same. */
void aes_gcm_seal_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *from, uint8_t *to,
                       size_t n_bytes);

/* Decrypts the next n_bytes of the piece in place. They must not be used before the tag of the
 * whole piece was compared. */
void aes_gcm_open_step(const AesGcmKey *key, AesGcmSteps *steps, uint8_t *bytes, size_t n_bytes);

/* The tag of all that was sealed or opened. */
void aes_gcm_end(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES]);

/* The same for a piece of which nothing is encrypted: the tag of bytes in several places. */
void aes_gcm_begin_mac(const AesGcmKey *key, AesGcmSteps *steps,
                       const uint8_t nonce[AES_GCM_NONCE_BYTES]);
void aes_gcm_mac_step(const AesGcmKey *key, AesGcmSteps *steps, const uint8_t *bytes,
                      size_t n_bytes);
void aes_gcm_end_mac(const AesGcmKey *key, AesGcmSteps *steps, uint8_t tag[AES_GCM_TAG_BYTES]);

/* Encrypts n_bytes from `from` to `to`, which may be the same. */
void aes_gcm_seal(const AesGcmKey *key, const AesGcmPiece *piece, const uint8_t *from, uint8_t *to,
                  uint8_t tag[AES_GCM_TAG_BYTES]);

/* Decrypts n_bytes in place. False: they, or `more`, are not what was sealed; then the bytes must
 * not be used. */
bool aes_gcm_open(const AesGcmKey *key, const AesGcmPiece *piece, uint8_t *bytes,
                  const uint8_t tag[AES_GCM_TAG_BYTES]);

#endif
