/* How the two ends of a connection prove to each other that they know the secret of the run.
 *
 * A pure state machine: bytes go in, bytes come out; the transports move them.
 *
 *   who connects                              who was connected to
 *   HELLO: node, whom it wants, nonce,   →    closes on a wrong proof
 *          public key, proof
 *                                        ←    HELLO: the same of this end, proof
 *   FINISH: proof                        →    closes on a wrong proof
 *   packets                              →    (and answers to greetings, back)
 *
 * A proof is a hash that is keyed with the secret. It covers everything that both ends have said so
 * far, and the shared value of the two public keys, which are drawn for this connection alone. The
 * hash also says which of the three proofs it is. So nothing can be replayed on another connection,
 * reflected, or changed on its way. Somebody who learns the secret later cannot read what was said
 * before.
 *
 * Without a secret, a constant takes its place. Everything else is the same, but it protects from
 * accidents only.
 *
 * HELLO has the same form in all wire versions, so that nodes of different versions can refuse each
 * other by name.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_NET_SECURE_HANDSHAKE_H
#define RUBATO_IO_NET_SECURE_HANDSHAKE_H

#include "io/net/secure/seal.h"
#include "io/net/secure/secret.h"

#define HANDSHAKE_HELLO_BYTES 144
#define HANDSHAKE_FINISH_BYTES 32
#define HANDSHAKE_SEED_BYTES 64

#define HANDSHAKE_ANY_NODE UINT32_MAX

typedef struct {
    const RunSecret *secret; /* NULL: none; copied */
    uint32_t node;           /* this end's number */
    uint64_t incarnation;
    uint32_t wanted_node;        /* of the connecting end: the node that it wants;
                                  * HANDSHAKE_ANY_NODE */
    uint64_t wanted_incarnation; /* 0: any */
    Protection protection;       /* at least; both ends use the higher of their two */
} HandshakeConfig;

typedef enum {
    HANDSHAKE_ROLE_CONNECTS,
    HANDSHAKE_ROLE_ACCEPTS,
} HandshakeRole;

typedef enum {
    HANDSHAKE_GOES_ON,
    HANDSHAKE_DONE,
    HANDSHAKE_FAILED,
} HandshakeState;

typedef struct {
    HandshakeRole role;
    HandshakeState state;
    HandshakeConfig config;
    RunSecret key; /* the secret, or the constant in its place */
    uint8_t seed[HANDSHAKE_SEED_BYTES];
    uint8_t public_key[32], private_key[32];
    uint8_t connects[HANDSHAKE_HELLO_BYTES]; /* the HELLO of each end */
    uint8_t accepts[HANDSHAKE_HELLO_BYTES];
    uint8_t shared[64];                   /* the shared value of the public keys */
    uint8_t input[HANDSHAKE_HELLO_BYTES]; /* what has arrived of the next message */
    size_t n_input, n_wanted;
    bool is_recognised; /* the other end's HELLO had a correct proof, and was meant for this end */
    bool is_another;    /* who answered has proved that it is not the wanted one */
} Handshake;

/* Begins. The connecting end has output at once. `seed` is random; NULL: it is drawn here. */
void handshake_init(Handshake *handshake, HandshakeRole role, const HandshakeConfig *config,
                    const uint8_t seed[HANDSHAKE_SEED_BYTES]);

/* Wipes what is secret. */
void handshake_clear(Handshake *handshake);

/* The most bytes that may come next; 0 when the handshake is over. */
size_t handshake_wants(const Handshake *handshake);

/* Takes up to that many bytes. Writes to `output` what must be sent next, and its size to
 * *n_output. If the handshake has failed, returns the reason, in words for a log; else NULL. The
 * output is sent then, too: it proves to who knows the secret that it has come to another node. */
const char *handshake_take(Handshake *handshake, const uint8_t *bytes, size_t n,
                           uint8_t output[HANDSHAKE_HELLO_BYTES], size_t *n_output);

/* Writes what must be sent before anything comes; returns its size. */
size_t handshake_begin(const Handshake *handshake, uint8_t output[HANDSHAKE_HELLO_BYTES]);

/* The other end. Only after its HELLO was recognised. */
uint32_t handshake_peer_node(const Handshake *handshake);
uint64_t handshake_peer_incarnation(const Handshake *handshake);

/* The seals of what this end sends and receives. Only after the handshake is done. */
void handshake_make_seals(const Handshake *handshake, Seal *sends, Seal *receives);

#endif
