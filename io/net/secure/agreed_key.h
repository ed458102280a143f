/* The key of a way between two nodes that have met over a connection on which both have proved that
 * they know the secret of the run: from the secret, and from what both have drawn there.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_SECURE_AGREED_KEY_H
#define RUBATO_IO_NET_SECURE_AGREED_KEY_H

#include "io/net/secure/secret.h"

#define AGREED_KEY_BYTES 32

/* What an end draws for a key, and tells the other. */
void agreed_key_draw(uint8_t nonce[AGREED_KEY_BYTES]);

/* The key for what both have drawn: BLAKE2b of the label, with its end, and of the nonces of who
 * has asked and of who has answered, keyed with the secret. Without a secret (NULL) anybody knows
 * it. The caller wipes it with run_secret_wipe. */
void agreed_key_make(const RunSecret *secret, const char *label,
                     const uint8_t asked[AGREED_KEY_BYTES],
                     const uint8_t answered[AGREED_KEY_BYTES], uint8_t key[AGREED_KEY_BYTES]);

#endif
