/* The handshake of a connection, and the seals that it makes: only an end that knows the secret is
 * accepted, and not with another secret, by a replay, or with changed bytes.
 *
 * docs/security.md: Who can do what */
#include <sodium.h>
#include <string.h>

#include "io/net/secure/handshake.h"
#include "tests/support/runner.h"

static const RunSecret SECRET = { { 1, 2, 3 } }, OTHER_SECRET = { { 1, 2, 4 } };

static const HandshakeConfig CONNECTS = {
    .secret = &SECRET, .node = 0, .incarnation = 100, .wanted_node = 1, .wanted_incarnation = 101
};
static const HandshakeConfig ACCEPTS = {
    .secret = &SECRET, .node = 1, .incarnation = 101, .wanted_node = HANDSHAKE_ANY_NODE
};

typedef struct {
    uint8_t bytes[HANDSHAKE_HELLO_BYTES];
    size_t size;
} Said;

/* Two ends, what each said, and the first fault at each. */
typedef struct {
    Handshake connects, accepts;
    Said hello, answer, finish;
    const char *connects_fault, *accepts_fault;
} Pair;

static const char *give(Handshake *to, const Said *said, Said *answer)
{
    const size_t wanted = handshake_wants(to);
    size_t n = 0;
    const char *const fault =
        handshake_take(to, said->bytes, MIN(said->size, wanted), answer->bytes, &n);

    answer->size = n;
    return fault;
}

static void begin(Pair *pair, const HandshakeConfig *connects, const HandshakeConfig *accepts)
{
    *pair = (Pair){ .connects_fault = NULL };
    handshake_init(&pair->connects, HANDSHAKE_ROLE_CONNECTS, connects, NULL);
    handshake_init(&pair->accepts, HANDSHAKE_ROLE_ACCEPTS, accepts, NULL);
    pair->hello.size = handshake_begin(&pair->connects, pair->hello.bytes);
}

/* Continues from a HELLO to the end, or to a fault. */
static void go_on(Pair *pair)
{
    Said nothing;

    pair->accepts_fault = give(&pair->accepts, &pair->hello, &pair->answer);
    if (pair->accepts_fault != NULL)
        return;
    pair->connects_fault = give(&pair->connects, &pair->answer, &pair->finish);
    if (pair->connects_fault == NULL)
        pair->accepts_fault = give(&pair->accepts, &pair->finish, &nothing);
}

static bool is_done(const Pair *pair)
{
    return pair->connects.state == HANDSHAKE_DONE && pair->accepts.state == HANDSHAKE_DONE;
}

START_TEST(both_ends_learn_who_the_other_is)
{
    Pair pair;

    begin(&pair, &CONNECTS, &ACCEPTS);
    go_on(&pair);
    ck_assert(is_done(&pair));
    ck_assert_uint_eq(handshake_peer_node(&pair.connects), 1);
    ck_assert_uint_eq(handshake_peer_incarnation(&pair.connects), 101);
    ck_assert_uint_eq(handshake_peer_node(&pair.accepts), 0);
    ck_assert_uint_eq(handshake_peer_incarnation(&pair.accepts), 100);
    ck_assert_uint_eq(handshake_wants(&pair.accepts), 0);
}
END_TEST

START_TEST(bytes_may_come_one_by_one)
{
    Pair pair;
    Said all[3], *const turn[] = { &all[0], &all[1], &all[2] };

    begin(&pair, &CONNECTS, &ACCEPTS);
    all[0] = pair.hello;
    for (unsigned k = 0; k < 3; k++) {
        Handshake *const to = k == 1 ? &pair.connects : &pair.accepts;
        for (size_t i = 0; i < turn[k]->size; i++) {
            Said answer = { .size = 0 };
            ck_assert_uint_gt(handshake_wants(to), 0);
            ck_assert_ptr_null(
                handshake_take(to, turn[k]->bytes + i, 1, answer.bytes, &answer.size));
            if (k < 2 && answer.size > 0)
                all[k + 1] = answer;
        }
    }
    ck_assert(is_done(&pair));
}
END_TEST

START_TEST(without_a_secret_on_both_sides_it_is_the_same)
{
    HandshakeConfig connects = CONNECTS, accepts = ACCEPTS;
    Pair pair;

    connects.secret = accepts.secret = NULL;
    begin(&pair, &connects, &accepts);
    go_on(&pair);
    ck_assert(is_done(&pair));
}
END_TEST

static const struct {
    const RunSecret *connects, *accepts;
} unlike[] = { { &SECRET, &OTHER_SECRET }, { NULL, &SECRET }, { &SECRET, NULL } };

START_TEST(who_has_another_secret_is_refused_before_anything_is_answered)
{
    HandshakeConfig connects = CONNECTS, accepts = ACCEPTS;
    Pair pair;

    connects.secret = unlike[_i].connects;
    accepts.secret = unlike[_i].accepts;
    begin(&pair, &connects, &accepts);
    go_on(&pair);
    ck_assert_str_eq(pair.accepts_fault, "it does not know this run's secret");
    ck_assert_uint_eq(pair.answer.size, 0);
    ck_assert(!pair.accepts.is_recognised);
    ck_assert_uint_eq(handshake_wants(&pair.accepts), 0);
}
END_TEST

/* An accepting end without the secret is refused too. */
START_TEST(impostor_that_answers_is_refused)
{
    HandshakeConfig impostor = ACCEPTS;
    Pair pair, other;

    impostor.secret = &OTHER_SECRET;
    begin(&pair, &CONNECTS, &ACCEPTS);
    begin(&other, &CONNECTS, &impostor);
    other.connects.key = OTHER_SECRET; /* so that it gets as far as an answer */
    handshake_init(&other.connects, HANDSHAKE_ROLE_CONNECTS,
                   &(HandshakeConfig){ .secret = &OTHER_SECRET, .wanted_node = 1 }, NULL);
    other.hello.size = handshake_begin(&other.connects, other.hello.bytes);
    ck_assert_ptr_null(give(&other.accepts, &other.hello, &other.answer));
    ck_assert_str_eq(give(&pair.connects, &other.answer, &pair.finish),
                     "it does not know this run's secret");
    ck_assert_uint_eq(pair.finish.size, 0);
}
END_TEST

/* All that was said on one connection, said again on another. */
START_TEST(replay_is_refused)
{
    Pair pair, again;
    Said answer, nothing;

    begin(&pair, &CONNECTS, &ACCEPTS);
    go_on(&pair);
    ck_assert(is_done(&pair));
    begin(&again, &CONNECTS, &ACCEPTS);
    ck_assert_ptr_null(give(&again.accepts, &pair.hello, &answer)); /* it is a right one */
    ck_assert_str_eq(give(&again.accepts, &pair.finish, &nothing),
                     "it does not know this run's secret");
    ck_assert_str_eq(give(&again.connects, &pair.answer, &nothing),
                     "it does not know this run's secret");
}
END_TEST

/* A node gets its own bytes back. */
START_TEST(reflection_is_refused)
{
    HandshakeConfig any = CONNECTS;
    Handshake own;
    Pair pair;
    Said nothing;

    any.wanted_node = HANDSHAKE_ANY_NODE;
    any.wanted_incarnation = 0;
    begin(&pair, &any, &ACCEPTS);
    ck_assert_str_eq(give(&pair.connects, &pair.hello, &nothing),
                     "it does not know this run's secret");
    /* or to the address at which it listens, whose answer comes back as that of the other node */
    begin(&pair, &CONNECTS, &ACCEPTS);
    handshake_init(&own, HANDSHAKE_ROLE_ACCEPTS, &any, NULL);
    ck_assert_str_eq(give(&own, &pair.hello, &nothing), "it is meant for another node");
    handshake_clear(&own);
}
END_TEST

/* Both ends know that they are not meant for each other. */
static void expect_another(Pair *pair)
{
    Said nothing;

    ck_assert_str_eq(pair->accepts_fault, "it is meant for another node");
    ck_assert(!pair->accepts.is_recognised);
    ck_assert_uint_eq(handshake_wants(&pair->accepts), 0);
    ck_assert_str_eq(give(&pair->connects, &pair->answer, &nothing), "it is another node");
    ck_assert(pair->connects.is_another);
    ck_assert_uint_eq(nothing.size, 0);
}

START_TEST(connection_that_is_led_to_another_node_is_refused)
{
    HandshakeConfig third = ACCEPTS;
    Pair pair;

    third.node = 2;
    begin(&pair, &CONNECTS, &third);
    go_on(&pair);
    expect_another(&pair);
    third = ACCEPTS;
    third.incarnation++; /* the node was started anew */
    begin(&pair, &CONNECTS, &third);
    go_on(&pair);
    expect_another(&pair);
}
END_TEST

/* The accepting end knows the secret and accepts any node, but is not the wanted node. */
START_TEST(another_node_that_answers_is_refused)
{
    HandshakeConfig anybody = CONNECTS;
    Pair pair;

    anybody.wanted_node = HANDSHAKE_ANY_NODE;
    anybody.wanted_incarnation = 0;
    begin(&pair, &anybody, &ACCEPTS);
    go_on(&pair);
    ck_assert(is_done(&pair));
    begin(&pair, &anybody, &ACCEPTS);
    pair.connects.config.wanted_node = 2;
    go_on(&pair);
    ck_assert_pstr_eq(pair.connects_fault, "it is another node");
    begin(&pair, &anybody, &ACCEPTS);
    pair.connects.config.wanted_incarnation = 102;
    go_on(&pair);
    ck_assert_pstr_eq(pair.connects_fault, "it is another node");
}
END_TEST

/* An attacker between the two changes one bit of the handshake. */
START_TEST(no_bit_can_be_changed_on_the_way)
{
    static const size_t sizes[] = { HANDSHAKE_HELLO_BYTES, HANDSHAKE_HELLO_BYTES,
                                    HANDSHAKE_FINISH_BYTES };

    for (unsigned k = 0; k < 3; k++)
        for (size_t bit = 0; bit < 8 * sizes[k]; bit += k == 0 ? 1 : 3) {
            const uint8_t mask = (uint8_t)(1u << bit % 8);
            Pair pair;
            Said nothing;

            begin(&pair, &CONNECTS, &ACCEPTS);
            if (k == 0)
                pair.hello.bytes[bit / 8] ^= mask;
            pair.accepts_fault = give(&pair.accepts, &pair.hello, &pair.answer);
            if (k == 0) {
                ck_assert_ptr_nonnull(pair.accepts_fault);
                continue;
            }
            if (k == 1)
                pair.answer.bytes[bit / 8] ^= mask;
            pair.connects_fault = give(&pair.connects, &pair.answer, &pair.finish);
            if (k == 1) {
                ck_assert_ptr_nonnull(pair.connects_fault);
                continue;
            }
            pair.finish.bytes[bit / 8] ^= mask;
            ck_assert_ptr_nonnull(give(&pair.accepts, &pair.finish, &nothing));
        }
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    const char *fault;
} nonsense[] = {
    { "X", 1, "it does not begin like a node's connection" },
    { "RBTOTCP1", 8, "it does not begin like a node's connection" },
    { "GET / HTTP/1.1\r\n", 16, "it does not begin like a node's connection" },
    { "RBTOHAND\x01", 10, "its handshake is that of another version of Rubato" },
    { "RBTOHAND\x03", 10, "its handshake is that of another version of Rubato" },
    { "RBTOHAND\0", 10, "its handshake is that of another version of Rubato" },
    { "RBTOHAND\x02", 10, NULL },
    { "RBTO", 4, NULL },
};

START_TEST(nonsense_is_refused_with_its_first_byte)
{
    Pair pair;
    Said said = { .size = nonsense[_i].size }, nothing;

    memcpy(said.bytes, nonsense[_i].bytes, said.size);
    begin(&pair, &CONNECTS, &ACCEPTS);
    const char *const fault = give(&pair.accepts, &said, &nothing);
    ck_assert_ptr_eq(fault == NULL ? NULL : strstr(nonsense[_i].fault, fault), nonsense[_i].fault);
}
END_TEST

/* ---- what is said after it ---- */

static void make_seals(Protection one, Protection other, Seal *sends, Seal *receives)
{
    HandshakeConfig connects = CONNECTS, accepts = ACCEPTS;
    Seal back, forth;
    Pair pair;

    connects.protection = one;
    accepts.protection = other;
    begin(&pair, &connects, &accepts);
    go_on(&pair);
    ck_assert(is_done(&pair));
    handshake_make_seals(&pair.connects, sends, &back);
    handshake_make_seals(&pair.accepts, &forth, receives);
    ck_assert_mem_eq(back.key, forth.key, SEAL_KEY_BYTES);
    ck_assert_mem_ne(back.key, sends->key, SEAL_KEY_BYTES);
}

static const size_t sizes[] = { 0, 1, 15, 16, 17, 64, 1000, 131072 };

/* Also under the other cipher. */
static void use_cipher(Seal *seal, SealCipher cipher)
{
    const Seal before = *seal;

    seal_init(seal, before.protection, cipher, before.key);
}

START_TEST(pieces_open_in_their_order_and_no_other_way)
{
    static const Protection protections[] = { PROTECTION_CHECKSUM, PROTECTION_MAC,
                                              PROTECTION_ENCRYPT };
    const Protection protection = protections[_i % 3];
    const SealCipher cipher = _i < 3 || !seal_has_aes() ? SEAL_XCHACHA20_POLY1305 : SEAL_AES256_GCM;
    g_autofree uint8_t *plain = g_malloc(131072 + 1), *sent = g_malloc(131072 + 1);
    uint8_t tag[SEAL_TAG_BYTES];
    Seal sends, receives;

    make_seals(protection, PROTECTION_CHECKSUM, &sends, &receives);
    use_cipher(&sends, cipher);
    use_cipher(&receives, cipher);
    ck_assert_uint_eq(sends.protection, protection);
    ck_assert_uint_eq(receives.protection, protection);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        const size_t size = sizes[i];
        for (size_t k = 0; k < size; k++)
            plain[k] = (uint8_t)(k * 7 + i);
        memcpy(sent, plain, size);
        seal_close(&sends, plain, size, sent, tag);
        if (size >= 16)
            ck_assert_int_eq(memcmp(sent, plain, size) != 0, protection == PROTECTION_ENCRYPT);
        Seal copy = receives;
        tag[3] ^= 1;
        ck_assert(!seal_open(&copy, sent, size, tag)); /* another tag */
        tag[3] ^= 1;
        memcpy(sent, plain, size);
        copy = sends;
        copy.n_pieces--;
        seal_close(&copy, plain, size, sent, tag);
        if (size > 0) {
            copy = receives;
            sent[size / 2] ^= 0x10;
            ck_assert(!seal_open(&copy, sent, size, tag)); /* another byte */
            memcpy(sent, plain, size);
            copy = sends;
            copy.n_pieces--;
            seal_close(&copy, plain, size, sent, tag);
            copy = receives;
            ck_assert(!seal_open(&copy, sent, size - 1, tag)); /* a shorter one */
            memcpy(sent, plain, size);
            copy = sends;
            copy.n_pieces--;
            seal_close(&copy, plain, size, sent, tag);
        }
        copy = receives;
        seal_skip(&copy);
        g_autofree uint8_t *moved = g_memdup2(sent, size + 1);
        ck_assert(!seal_open(&copy, moved, size, tag)); /* at another place */
        ck_assert(seal_open(&receives, sent, size, tag));
        ck_assert_mem_eq(sent, plain, size);
    }
}
END_TEST

START_TEST(higher_protection_of_the_two_counts)
{
    Seal sends, receives;

    make_seals(PROTECTION_CHECKSUM, PROTECTION_ENCRYPT, &sends, &receives);
    ck_assert_uint_eq(sends.protection, PROTECTION_ENCRYPT);
    ck_assert_uint_eq(receives.protection, PROTECTION_ENCRYPT);
    make_seals(PROTECTION_MAC, PROTECTION_CHECKSUM, &sends, &receives);
    ck_assert_uint_eq(sends.protection, PROTECTION_MAC);
    make_seals(PROTECTION_NONE, PROTECTION_CHECKSUM, &sends, &receives);
    ck_assert_uint_eq(sends.protection, PROTECTION_CHECKSUM);
    make_seals(PROTECTION_NONE, PROTECTION_NONE, &sends, &receives);
    ck_assert_uint_eq(sends.protection, PROTECTION_NONE);
}
END_TEST

/* Within a host a piece is known by its number alone. */
START_TEST(pieces_that_have_no_protection_come_in_their_order)
{
    uint8_t pieces[3][8] = { "one", "two", "three" }, tags[3][SEAL_TAG_BYTES];
    Seal sends, receives;

    make_seals(PROTECTION_NONE, PROTECTION_NONE, &sends, &receives);
    for (size_t i = 0; i < 3; i++)
        seal_close(&sends, pieces[i], sizeof pieces[i], NULL, tags[i]);
    Seal copy = receives;
    ck_assert(!seal_open(&copy, pieces[1], sizeof pieces[1], tags[1]));
    ck_assert(seal_open(&receives, pieces[0], sizeof pieces[0], tags[0]));
    copy = receives;
    ck_assert(!seal_open(&copy, pieces[0], sizeof pieces[0], tags[0]));
    seal_skip(&receives);
    ck_assert(seal_open(&receives, pieces[2], sizeof pieces[2], tags[2]));
}
END_TEST

/* Test case 15 of the GCM specification of McGrew and Viega (no additional data, 256 bits), and
 * what libsodium makes of other sizes: the two ends of a connection may use different libraries. */
START_TEST(aes_gcm_is_that_of_its_specification)
{
    static const char *const key_text =
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    static const char *const plain_text =
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    static const char *const tag_text = "b094dac5d93471bdec1a502270e3cc6c";
    static const uint8_t nonce[AES_GCM_NONCE_BYTES] = { 0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce,
                                                        0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88 };
    uint8_t bytes[AES_GCM_KEY_BYTES], plain[64], sealed[64], tag[16], due[16];
    const AesGcmPiece piece = { .nonce = nonce, .more = plain, .n_bytes = sizeof plain };
    AesGcmKey key;

    if (!aes_gcm_is_available())
        return;
    ck_assert_int_eq(sodium_hex2bin(bytes, sizeof bytes, key_text, 64, NULL, NULL, NULL), 0);
    ck_assert_int_eq(sodium_hex2bin(plain, sizeof plain, plain_text, 128, NULL, NULL, NULL), 0);
    ck_assert_int_eq(sodium_hex2bin(due, sizeof due, tag_text, 32, NULL, NULL, NULL), 0);
    aes_gcm_prepare(&key, bytes);
    aes_gcm_seal(&key, &piece, plain, sealed, tag);
    ck_assert_uint_eq(sealed[0], 0x52);
    ck_assert_uint_eq(sealed[63], 0xad);
    ck_assert_mem_eq(tag, due, sizeof tag);
    ck_assert(aes_gcm_open(&key, &piece, sealed, tag));
    ck_assert_mem_eq(sealed, plain, sizeof plain);
    for (size_t size = 0; size < 3000; size = size * 3 / 2 + 1) {
        g_autofree uint8_t *from = g_malloc0(size + 1), *ours = g_malloc(size + 1);
        g_autofree uint8_t *theirs = g_malloc(size + 1);
        const AesGcmPiece next = { nonce, plain, size % sizeof plain, size };

        aes_gcm_seal(&key, &next, from, ours, tag);
        crypto_aead_aes256gcm_encrypt_detached(theirs, due, NULL, from, size, plain, next.n_more,
                                               NULL, nonce, bytes);
        ck_assert_mem_eq(tag, due, sizeof tag);
        ck_assert(size == 0 || memcmp(ours, theirs, size) == 0);
    }
}
END_TEST

/* A piece that is sealed in parts of any sizes, from several places, is the same as one sealed at
 * once, and takes one number. Whoever sealed it can undo that. */
START_TEST(piece_sealed_in_steps_is_that_sealed_at_once)
{
    enum { SIZE = 100000 };
    g_autofree uint8_t *plain = g_malloc(SIZE), *whole = g_malloc(SIZE), *parts = g_malloc(SIZE);
    uint8_t tag[SEAL_TAG_BYTES], due[SEAL_TAG_BYTES];
    Seal once, steps, receives;
    SealMark mark = { 0 };

    make_seals(PROTECTION_ENCRYPT, PROTECTION_ENCRYPT, &once, &receives);
    if (!seal_has_steps(&once)) {
        use_cipher(&once, SEAL_XCHACHA20_POLY1305);
        ck_assert(!seal_has_steps(&once));
        return;
    }
    steps = once;
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)(i * 11 + (i >> 9));
    for (size_t first = 1; first < SIZE; first = first * 3 / 2 + 1) {
        seal_close(&once, plain, SIZE, whole, due);
        memcpy(parts, plain, first);
        seal_begin(&steps, &mark);
        seal_step(&steps, parts, first, parts); /* in place */
        seal_step(&steps, plain + first, (SIZE - first) / 3, parts + first);
        const size_t at = first + (SIZE - first) / 3;
        seal_step(&steps, plain + at, SIZE - at, parts + at);
        seal_end(&steps, tag);
        ck_assert_mem_eq(parts, whole, SIZE);
        ck_assert_mem_eq(tag, due, sizeof tag);
        ck_assert_uint_eq(steps.n_pieces, once.n_pieces);
        ck_assert(mark.is_set);
        seal_undo(&mark, parts, SIZE);
        ck_assert(!mark.is_set);
        ck_assert_mem_eq(parts, plain, SIZE);
        ck_assert(seal_open(&receives, whole, SIZE, tag));
        ck_assert_mem_eq(whole, plain, SIZE);
    }
}
END_TEST

/* _i: protections. */
START_TEST(piece_opened_in_two_places_is_that_sealed_in_one)
{
    enum { SIZE = 50000 };
    const Protection protection = (Protection)_i;
    g_autofree uint8_t *plain = g_malloc(SIZE), *sent = g_malloc(SIZE);
    uint8_t tag[SEAL_TAG_BYTES];
    Seal sends, receives;

    make_seals(protection, protection, &sends, &receives);
    if (!seal_opens_apart(&receives))
        return;
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)(i * 11 + (i >> 9));
    for (size_t n_head = 1; n_head < SIZE; n_head = n_head * 3 + 7) {
        Seal apart = sends;
        memcpy(sent, plain, SIZE);
        seal_close(&sends, plain, SIZE, sent, tag);
        if (protection != PROTECTION_ENCRYPT) {
            uint8_t same[SEAL_TAG_BYTES];

            seal_close_apart(&apart, plain, n_head, plain + n_head, SIZE - n_head, same);
            ck_assert_mem_eq(same, tag, sizeof tag);
            ck_assert_uint_eq(apart.n_pieces, sends.n_pieces);
        }
        for (unsigned what = 0; what < 4; what++) { /* the head, the rest, the tag are changed */
            g_autofree uint8_t *head = g_memdup2(sent, n_head);
            g_autofree uint8_t *rest = g_memdup2(sent + n_head, SIZE - n_head);
            const SealParts parts = { head, n_head, rest, SIZE - n_head };
            Seal copy = receives;

            head[n_head / 2] ^= what == 0;
            rest[(SIZE - n_head) / 2] ^= what == 1;
            tag[3] ^= what == 2;
            const bool opens = seal_open_apart(what == 3 ? &receives : &copy, &parts, tag);
            tag[3] ^= what == 2;
            ck_assert(opens == (what == 3 || (protection == PROTECTION_NONE && what != 2)));
            if (what == 3) {
                ck_assert_mem_eq(head, plain, n_head);
                ck_assert_mem_eq(rest, plain + n_head, SIZE - n_head);
            }
        }
    }
    ck_assert_uint_eq(receives.n_pieces, sends.n_pieces);
}
END_TEST

START_TEST(no_two_connections_have_the_same_key)
{
    Seal one, other, unused;

    make_seals(PROTECTION_MAC, PROTECTION_MAC, &one, &unused);
    make_seals(PROTECTION_MAC, PROTECTION_MAC, &other, &unused);
    ck_assert_mem_ne(one.key, other.key, SEAL_KEY_BYTES);
}
END_TEST

/* _i: a protection. A piece of one connection, at the same place of another. */
START_TEST(pieces_of_another_connection_do_not_open)
{
    uint8_t piece[64] = { 7 }, tag[SEAL_TAG_BYTES];
    Seal sends, receives, unused;

    make_seals((Protection)_i, PROTECTION_CHECKSUM, &sends, &unused);
    make_seals((Protection)_i, PROTECTION_CHECKSUM, &unused, &receives);
    seal_close(&sends, piece, sizeof piece, piece, tag);
    ck_assert(!seal_open(&receives, piece, sizeof piece, tag));
}
END_TEST

/* An attacker who knows the secret and has heard everything does not know the shared value of the
 * public keys. */
START_TEST(keys_need_what_only_the_two_ends_have)
{
    Seal sends, receives, others, unused;
    Pair pair;

    begin(&pair, &CONNECTS, &ACCEPTS);
    go_on(&pair);
    ck_assert(is_done(&pair));
    handshake_make_seals(&pair.connects, &sends, &receives);
    ck_assert_mem_ne(sends.key, receives.key, SEAL_KEY_BYTES);
    for (size_t i = 0; i < sizeof pair.connects.shared; i += 32) {
        Handshake listener = pair.connects;

        listener.shared[i] ^= 1;
        handshake_make_seals(&listener, &others, &unused);
        ck_assert_mem_ne(sends.key, others.key, SEAL_KEY_BYTES);
        ck_assert_mem_ne(receives.key, unused.key, SEAL_KEY_BYTES);
    }
}
END_TEST

/* _i: which of the two has no instructions for AES. */
START_TEST(cipher_is_one_that_both_ends_have)
{
    enum { CIPHERS_AT = 13 };
    Seal sends, receives;
    Pair pair;

    begin(&pair, &CONNECTS, &ACCEPTS);
    go_on(&pair);
    ck_assert(is_done(&pair));
    handshake_make_seals(&pair.connects, &sends, &receives);
    ck_assert_uint_eq(sends.cipher, seal_has_aes() ? SEAL_AES256_GCM : SEAL_XCHACHA20_POLY1305);
    pair.connects.connects[CIPHERS_AT] = _i == 0 ? SEAL_XCHACHA20_POLY1305 : SEAL_AES256_GCM;
    pair.connects.accepts[CIPHERS_AT] = _i == 1 ? SEAL_XCHACHA20_POLY1305 : SEAL_AES256_GCM;
    handshake_make_seals(&pair.connects, &sends, &receives);
    ck_assert_uint_eq(sends.cipher, SEAL_XCHACHA20_POLY1305);
    ck_assert_uint_eq(receives.cipher, SEAL_XCHACHA20_POLY1305);
}
END_TEST

START_TEST(cleared_seal_is_wiped)
{
    static const Seal nothing;
    Seal sends, receives;

    make_seals(PROTECTION_ENCRYPT, PROTECTION_ENCRYPT, &sends, &receives);
    seal_clear(&sends);
    ck_assert_mem_eq(&sends, &nothing, sizeof sends);
}
END_TEST

static Suite *handshake_suite(void)
{
    Suite *suite = suite_create("handshake");
    TCase *proof = tcase_create("proof");
    TCase *seals = tcase_create("seals");

    suite_add_tcase(suite, proof);
    suite_add_tcase(suite, seals);
    tcase_set_timeout(proof, 60);
    tcase_add_test(proof, both_ends_learn_who_the_other_is);
    tcase_add_test(proof, bytes_may_come_one_by_one);
    tcase_add_test(proof, without_a_secret_on_both_sides_it_is_the_same);
    tcase_add_loop_test(proof, who_has_another_secret_is_refused_before_anything_is_answered, 0,
                        (int)G_N_ELEMENTS(unlike));
    tcase_add_test(proof, impostor_that_answers_is_refused);
    tcase_add_test(proof, replay_is_refused);
    tcase_add_test(proof, reflection_is_refused);
    tcase_add_test(proof, connection_that_is_led_to_another_node_is_refused);
    tcase_add_test(proof, another_node_that_answers_is_refused);
    tcase_add_test(proof, no_bit_can_be_changed_on_the_way);
    tcase_add_loop_test(proof, nonsense_is_refused_with_its_first_byte, 0,
                        (int)G_N_ELEMENTS(nonsense));
    tcase_add_loop_test(seals, pieces_open_in_their_order_and_no_other_way, 0, 6);
    tcase_add_test(seals, higher_protection_of_the_two_counts);
    tcase_add_test(seals, pieces_that_have_no_protection_come_in_their_order);
    tcase_add_test(seals, aes_gcm_is_that_of_its_specification);
    tcase_add_test(seals, piece_sealed_in_steps_is_that_sealed_at_once);
    tcase_add_loop_test(seals, piece_opened_in_two_places_is_that_sealed_in_one, PROTECTION_NONE,
                        PROTECTION_ENCRYPT + 1);
    tcase_add_test(seals, no_two_connections_have_the_same_key);
    tcase_add_loop_test(seals, pieces_of_another_connection_do_not_open, PROTECTION_CHECKSUM,
                        PROTECTION_ENCRYPT + 1);
    tcase_add_test(seals, keys_need_what_only_the_two_ends_have);
    tcase_add_loop_test(seals, cipher_is_one_that_both_ends_have, 0, 2);
    tcase_add_test(seals, cleared_seal_is_wiped);
    return suite;
}

int main(void)
{
    return run_suite(handshake_suite());
}
