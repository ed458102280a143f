/* The handshake of a connection: see handshake.h.
 *
 *   HELLO: 0 magic  8 version of the handshake  10 wire version  12 protection  13 ciphers  14 zero
 *         16 node  20 wanted node  24 incarnation  32 wanted incarnation  40 zero  48 nonce
 *         80 public key  112 proof */
#include "io/net/secure/handshake.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#include "io/net/link/wire.h"

#define MAGIC "RBTOHAND"
#define MAGIC_BYTES ((size_t)8)
#define VERSION 2

enum {
    VERSION_AT = 8,
    WIRE_VERSION_AT = 10,
    PROTECTION_AT = 12,
    CIPHERS_AT = 13,
    NODE_AT = 16,
    WANTED_NODE_AT = 20,
    INCARNATION_AT = 24,
    WANTED_INCARNATION_AT = 32,
    NONCE_AT = 48,
    PUBLIC_KEY_AT = 80,
    PROOF_AT = 112,
    PROOF_BYTES = 32,
};

G_STATIC_ASSERT(PROOF_AT + PROOF_BYTES == HANDSHAKE_HELLO_BYTES);
G_STATIC_ASSERT(PROOF_BYTES == HANDSHAKE_FINISH_BYTES);

/* The purpose of a keyed hash is part of its input, so no two uses ever hash the same bytes. */
typedef enum {
    USE_HELLO_OF_WHO_CONNECTS = 1,
    USE_HELLO_OF_WHO_ACCEPTS,
    USE_FINISH,
    USE_KEY_OF_WHO_CONNECTS,
    USE_KEY_OF_WHO_ACCEPTS,
} Use;

/* The hash of a purpose over everything said so far: the first HELLO up to its proof, the second
 * one up to its proof, and the shared value of the public keys. */
static void hash(const Handshake *handshake, Use use, uint8_t to[32])
{
    const uint8_t label[16] = { 'r', 'u', 'b', 'a', 't', 'o', ' ', VERSION, (uint8_t)use };
    crypto_generichash_state state;

    crypto_generichash_init(&state, handshake->key.bytes, RUN_SECRET_BYTES, 32);
    crypto_generichash_update(&state, label, sizeof label);
    if (use == USE_HELLO_OF_WHO_CONNECTS) {
        crypto_generichash_update(&state, handshake->connects, PROOF_AT);
    } else {
        crypto_generichash_update(&state, handshake->connects, HANDSHAKE_HELLO_BYTES);
        crypto_generichash_update(&state, handshake->accepts,
                                  use == USE_HELLO_OF_WHO_ACCEPTS ? PROOF_AT
                                                                  : HANDSHAKE_HELLO_BYTES);
        crypto_generichash_update(&state, handshake->shared, sizeof handshake->shared);
    }
    crypto_generichash_final(&state, to, 32);
}

static bool is_proof(const Handshake *handshake, Use use, const uint8_t *proof)
{
    uint8_t due[PROOF_BYTES];

    hash(handshake, use, due);
    return sodium_memcmp(due, proof, PROOF_BYTES) == 0;
}

static uint8_t *own_hello(Handshake *handshake)
{
    return handshake->role == HANDSHAKE_ROLE_CONNECTS ? handshake->connects : handshake->accepts;
}

static const uint8_t *other_hello(const Handshake *handshake)
{
    return handshake->role == HANDSHAKE_ROLE_CONNECTS ? handshake->accepts : handshake->connects;
}

/* Makes the keys of this end, and its HELLO up to the proof. The accepting end does this only after
 * a correct HELLO of the other end, because it costs more than everything before it. */
static void make_hello(Handshake *handshake)
{
    const HandshakeConfig *const config = &handshake->config;
    uint8_t *const hello = own_hello(handshake);

    crypto_kx_seed_keypair(handshake->public_key, handshake->private_key, handshake->seed + 32);
    memcpy(hello, MAGIC, MAGIC_BYTES);
    wire_store_u16(hello + VERSION_AT, VERSION);
    wire_store_u16(hello + WIRE_VERSION_AT, WIRE_VERSION);
    hello[PROTECTION_AT] = (uint8_t)config->protection;
    hello[CIPHERS_AT] = seal_has_aes() ? SEAL_AES256_GCM : SEAL_XCHACHA20_POLY1305;
    wire_store_u32(hello + NODE_AT, config->node);
    wire_store_u32(hello + WANTED_NODE_AT, config->wanted_node);
    wire_store_u64(hello + INCARNATION_AT, config->incarnation);
    wire_store_u64(hello + WANTED_INCARNATION_AT, config->wanted_incarnation);
    memcpy(hello + NONCE_AT, handshake->seed, 32);
    memcpy(hello + PUBLIC_KEY_AT, handshake->public_key, 32);
}

void handshake_init(Handshake *handshake, HandshakeRole role, const HandshakeConfig *config,
                    const uint8_t seed[HANDSHAKE_SEED_BYTES])
{
    static const char constant[] = "rubato: there is no secret";
    const int has_random = sodium_init();

    g_assert(has_random >= 0); /* without random numbers there is no proof */
    memset(handshake, 0, sizeof *handshake);
    handshake->role = role;
    handshake->state = HANDSHAKE_GOES_ON;
    handshake->n_wanted = HANDSHAKE_HELLO_BYTES;
    handshake->config = *config;
    handshake->config.secret = NULL;
    if (config->secret != NULL)
        handshake->key = *config->secret;
    else
        memcpy(handshake->key.bytes, constant, sizeof constant);
    if (seed == NULL)
        randombytes_buf(handshake->seed, sizeof handshake->seed);
    else
        memcpy(handshake->seed, seed, sizeof handshake->seed);
    if (role != HANDSHAKE_ROLE_CONNECTS)
        return;
    make_hello(handshake);
    hash(handshake, USE_HELLO_OF_WHO_CONNECTS, handshake->connects + PROOF_AT);
}

void handshake_clear(Handshake *handshake)
{
    sodium_memzero(handshake, sizeof *handshake);
    handshake->state = HANDSHAKE_FAILED;
}

size_t handshake_wants(const Handshake *handshake)
{
    return handshake->state == HANDSHAKE_GOES_ON ? handshake->n_wanted - handshake->n_input : 0;
}

size_t handshake_begin(const Handshake *handshake, uint8_t output[HANDSHAKE_HELLO_BYTES])
{
    if (handshake->role != HANDSHAKE_ROLE_CONNECTS)
        return 0;
    memcpy(output, handshake->connects, HANDSHAKE_HELLO_BYTES);
    return HANDSHAKE_HELLO_BYTES;
}

/* Computes the shared value of the public keys, which is the same at both ends. */
static bool find_shared(Handshake *handshake)
{
    uint8_t *const of_connects = handshake->shared, *const of_accepts = handshake->shared + 32;
    const uint8_t *const its_key = other_hello(handshake) + PUBLIC_KEY_AT;

    if (handshake->role == HANDSHAKE_ROLE_CONNECTS)
        return crypto_kx_client_session_keys(of_accepts, of_connects, handshake->public_key,
                                             handshake->private_key, its_key) == 0;
    return crypto_kx_server_session_keys(of_connects, of_accepts, handshake->public_key,
                                         handshake->private_key, its_key) == 0;
}

/* Checks the part of a HELLO that needs no proof, as soon as this part has come. */
static const char *check_form(const Handshake *handshake)
{
    const size_t n = MIN(handshake->n_input, MAGIC_BYTES);

    if (handshake->n_wanted != HANDSHAKE_HELLO_BYTES)
        return NULL;
    if (memcmp(handshake->input, MAGIC, n) != 0)
        return "it does not begin like a node's connection";
    if (handshake->n_input >= VERSION_AT + 2 &&
        wire_load_u16(handshake->input + VERSION_AT) != VERSION)
        return "its handshake is that of another version of Rubato";
    return NULL;
}

/* Whether the HELLO of the connecting end is meant for this end. */
static const char *check_wanted(const Handshake *handshake)
{
    const uint32_t node = wire_load_u32(handshake->connects + WANTED_NODE_AT);
    const uint64_t incarnation = wire_load_u64(handshake->connects + WANTED_INCARNATION_AT);

    if ((node != HANDSHAKE_ANY_NODE && node != handshake->config.node) ||
        (incarnation != 0 && incarnation != handshake->config.incarnation))
        return "it is meant for another node";
    return NULL;
}

/* Whether the answering HELLO comes from the node that this end wants. */
static const char *check_answer(Handshake *handshake)
{
    const HandshakeConfig *const config = &handshake->config;

    handshake->is_another = (config->wanted_node != HANDSHAKE_ANY_NODE &&
                             handshake_peer_node(handshake) != config->wanted_node) ||
                            (config->wanted_incarnation != 0 &&
                             handshake_peer_incarnation(handshake) != config->wanted_incarnation);
    return handshake->is_another ? "it is another node" : NULL;
}

#define UNPROVEN "it does not know this run's secret"

/* The HELLO of the connecting end is complete. */
static const char *take_first_hello(Handshake *handshake, uint8_t *output, size_t *n_output)
{
    memcpy(handshake->connects, handshake->input, HANDSHAKE_HELLO_BYTES);
    if (!is_proof(handshake, USE_HELLO_OF_WHO_CONNECTS, handshake->connects + PROOF_AT))
        return UNPROVEN;
    const char *const fault = check_wanted(handshake);
    make_hello(handshake);
    if (!find_shared(handshake))
        return UNPROVEN;
    hash(handshake, USE_HELLO_OF_WHO_ACCEPTS, handshake->accepts + PROOF_AT);
    memcpy(output, handshake->accepts, HANDSHAKE_HELLO_BYTES);
    *n_output = HANDSHAKE_HELLO_BYTES;
    if (fault != NULL)
        return fault;
    handshake->is_recognised = true;
    handshake->n_wanted = HANDSHAKE_FINISH_BYTES;
    return NULL;
}

/* The HELLO that answers ours is complete. */
static const char *take_second_hello(Handshake *handshake, uint8_t *output, size_t *n_output)
{
    memcpy(handshake->accepts, handshake->input, HANDSHAKE_HELLO_BYTES);
    if (!find_shared(handshake) ||
        !is_proof(handshake, USE_HELLO_OF_WHO_ACCEPTS, handshake->accepts + PROOF_AT))
        return UNPROVEN;
    const char *const fault = check_answer(handshake);
    if (fault != NULL)
        return fault;
    handshake->is_recognised = true;
    hash(handshake, USE_FINISH, output);
    *n_output = HANDSHAKE_FINISH_BYTES;
    handshake->state = HANDSHAKE_DONE;
    return NULL;
}

static const char *take_message(Handshake *handshake, uint8_t *output, size_t *n_output)
{
    handshake->n_input = 0;
    if (handshake->role == HANDSHAKE_ROLE_CONNECTS)
        return take_second_hello(handshake, output, n_output);
    if (!handshake->is_recognised)
        return take_first_hello(handshake, output, n_output);
    if (!is_proof(handshake, USE_FINISH, handshake->input))
        return UNPROVEN;
    handshake->state = HANDSHAKE_DONE;
    return NULL;
}

const char *handshake_take(Handshake *handshake, const uint8_t *bytes, size_t n,
                           uint8_t output[HANDSHAKE_HELLO_BYTES], size_t *n_output)
{
    const char *fault;

    assert(n <= handshake_wants(handshake));
    *n_output = 0;
    memcpy(handshake->input + handshake->n_input, bytes, n);
    handshake->n_input += n;
    fault = check_form(handshake);
    if (fault == NULL && handshake->n_input == handshake->n_wanted)
        fault = take_message(handshake, output, n_output);
    if (fault != NULL)
        handshake->state = HANDSHAKE_FAILED;
    return fault;
}

uint32_t handshake_peer_node(const Handshake *handshake)
{
    return wire_load_u32(other_hello(handshake) + NODE_AT);
}

uint64_t handshake_peer_incarnation(const Handshake *handshake)
{
    return wire_load_u64(other_hello(handshake) + INCARNATION_AT);
}

void handshake_make_seals(const Handshake *handshake, Seal *sends, Seal *receives)
{
    const uint8_t one = handshake->connects[PROTECTION_AT],
                  other = handshake->accepts[PROTECTION_AT];
    const uint8_t higher = MAX(one, other);
    const Protection protection = (Protection)MIN(higher, (uint8_t)PROTECTION_ENCRYPT);
    const SealCipher cipher = handshake->connects[CIPHERS_AT] == SEAL_AES256_GCM &&
                                      handshake->accepts[CIPHERS_AT] == SEAL_AES256_GCM
                                  ? SEAL_AES256_GCM
                                  : SEAL_XCHACHA20_POLY1305;
    const bool connects = handshake->role == HANDSHAKE_ROLE_CONNECTS;
    uint8_t key[SEAL_KEY_BYTES];

    assert(handshake->state == HANDSHAKE_DONE);
    hash(handshake, USE_KEY_OF_WHO_CONNECTS, key);
    seal_init(connects ? sends : receives, protection, cipher, key);
    hash(handshake, USE_KEY_OF_WHO_ACCEPTS, key);
    seal_init(connects ? receives : sends, protection, cipher, key);
    sodium_memzero(key, sizeof key);
}
