/* Protects the bytes of one direction of a connection: by a tag for each piece and, if asked for,
 * by encryption.
 *
 * A seal is made from a key that belongs to this direction of this connection alone, and it counts
 * its pieces. So a piece that was changed, doubled, left out, moved, or taken from another
 * connection does not open. Without a secret, a tag is only a checksum. Within a host, where bytes
 * go from memory to memory, it is only the number of the piece.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_NET_SECURE_SEAL_H
#define RUBATO_IO_NET_SECURE_SEAL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/net/secure/aes_gcm.h"

typedef enum {
    PROTECTION_NONE = 0,     /* pieces are only numbered */
    PROTECTION_CHECKSUM = 1, /* finds accidents */
    PROTECTION_MAC = 2,      /* finds what anybody without the key has changed */
    PROTECTION_ENCRYPT = 3,  /* and keeps anybody without the key from reading it */
} Protection;

typedef enum {
    SEAL_XCHACHA20_POLY1305 = 0,
    SEAL_AES256_GCM = 1, /* if the processors of both ends have it */
} SealCipher;

#define SEAL_KEY_BYTES 32
#define SEAL_TAG_BYTES ((size_t)16)

typedef struct {
    AesGcmKey prepared; /* if the cipher is SEAL_AES256_GCM */
    uint8_t key[SEAL_KEY_BYTES];
    Protection protection;
    SealCipher cipher;
    uint64_t n_pieces; /* so far */
    AesGcmSteps steps; /* of the piece that is sealed in steps */
} Seal;

/* Whether this machine has AES256_GCM. */
bool seal_has_aes(void);

/* `key` is copied. */
void seal_init(Seal *seal, Protection protection, SealCipher cipher,
               const uint8_t key[SEAL_KEY_BYTES]);

/* Wipes the key. */
void seal_clear(Seal *seal);

/* Seals the next piece. PROTECTION_ENCRYPT writes `size` bytes to `to`, which may be `bytes`; the
 * others write only the tag. */
void seal_close(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *to,
                uint8_t tag[SEAL_TAG_BYTES]);

/* Opens the next piece in place. False: it is not what was sealed. */
bool seal_open(Seal *seal, uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES]);

/* Writes the tag of the next piece, which is in two places and is not encrypted. Only if
 * seal_opens_apart. */
void seal_close_apart(Seal *seal, const uint8_t *head, size_t n_head, const uint8_t *rest,
                      size_t n_rest, uint8_t tag[SEAL_TAG_BYTES]);

/* A piece in two places. */
typedef struct {
    uint8_t *head;
    size_t n_head;
    uint8_t *rest;
    size_t n_rest;
} SealParts;

/* Whether the next piece can also be opened in two places; and seal_open for these. */
bool seal_opens_apart(const Seal *seal);
bool seal_open_apart(Seal *seal, const SealParts *parts, const uint8_t tag[SEAL_TAG_BYTES]);

/* Under which key and number a piece was encrypted. */
typedef struct {
    bool is_set;
    uint8_t key[SEAL_KEY_BYTES];
    uint64_t number;
} SealMark;

/* Whether the next piece can also be sealed from several places, with the same result, by the
 * following calls: seal_begin, a step for each part in order, seal_end. */
bool seal_has_steps(const Seal *seal);

/* Begins the next piece. With its mark its end that encrypts it can undo that. */
void seal_begin(Seal *seal, SealMark *mark);
void seal_step(Seal *seal, const uint8_t *bytes, size_t size, uint8_t *to);
void seal_end(Seal *seal, uint8_t tag[SEAL_TAG_BYTES]);

/* Decrypts bytes that this process has sealed in steps, in place, and clears the mark. */
void seal_undo(SealMark *mark, uint8_t *bytes, size_t size);

/* Wipes the key. */
void seal_mark_clear(SealMark *mark);

/* Counts the next piece without opening it, because its bytes were dropped. */
void seal_skip(Seal *seal);

#endif
