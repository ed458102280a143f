/* The protection of a connection's bytes, and the pieces into which packets are cut for it. */
#include "io/net/transport/tcp/tcp_stream.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#include "io/net/link/wire.h"
#include "tests/support/runner.h"

static const RunSecret SECRET = { { 1, 2, 3 } };

typedef enum { PLACE_UNIX, PLACE_LOOPBACK, PLACE_LOOPBACK_6, PLACE_NOWHERE, N_PLACES } Place;

static bool connect_within_host(int fds[2], const struct sockaddr *address, socklen_t size)
{
    struct sockaddr_storage bound;
    socklen_t bound_size = sizeof bound;
    const int listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = listener != -1 && bind(listener, address, size) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&bound, &bound_size) == 0;

    if (ok) {
        fds[0] = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fds[0], (struct sockaddr *)&bound, bound_size), 0);
        fds[1] = accept(listener, NULL, NULL);
        ck_assert_int_ge(fds[1], 0);
    }
    if (listener != -1)
        close(listener);
    return ok;
}

/* Makes two ends of a connection: with different addresses for PLACE_LOOPBACK, only one end for
 * PLACE_NOWHERE. False if this host has no such connections. */
static bool open_ends(Place place, int fds[2])
{
    const struct sockaddr_in four = { .sin_family = AF_INET,
                                      .sin_addr = { htonl(INADDR_LOOPBACK + 1) } };
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    switch (place) {
    case PLACE_UNIX:
        return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0;
    case PLACE_LOOPBACK:
        return connect_within_host(fds, (const struct sockaddr *)&four, sizeof four);
    case PLACE_LOOPBACK_6:
        return connect_within_host(fds, (const struct sockaddr *)(const void *)&six, sizeof six);
    default:
        fds[0] = socket(AF_INET, SOCK_STREAM, 0);
        fds[1] = socket(AF_INET, SOCK_STREAM, 0);
        return fds[0] != -1 && fds[1] != -1;
    }
}

static void check_protection(const TransportConfig *config, const int fds[2], Protection expected)
{
    for (size_t i = 0; i < 2; i++) {
        const HandshakeConfig made = tcp_stream_config(config, fds[i]);

        ck_assert_uint_eq(made.protection, expected);
        ck_assert_ptr_eq(made.secret, config->secret);
        ck_assert_uint_eq(made.node, 3);
        ck_assert_uint_eq(made.incarnation, 33);
        ck_assert_uint_eq(made.wanted_node, HANDSHAKE_ANY_NODE);
        ck_assert_uint_eq(made.wanted_incarnation, 0);
    }
}

/* Between hosts, a secret gives MACs; within a host no protection is needed. */
START_TEST(protection_is_what_is_asked_for_and_what_the_place_needs)
{
    TransportConfig config = { .self = 3, .incarnation = 33 };
    int fds[2];

    if (!open_ends((Place)_i, fds)) {
        ck_assert_int_eq(_i, PLACE_LOOPBACK_6);
        return;
    }
    check_protection(&config, fds, _i == PLACE_NOWHERE ? PROTECTION_CHECKSUM : PROTECTION_NONE);
    config.authenticate = true;
    check_protection(&config, fds, PROTECTION_MAC);
    config.authenticate = false;
    config.secret = &SECRET;
    check_protection(&config, fds, _i == PLACE_NOWHERE ? PROTECTION_MAC : PROTECTION_NONE);
    config.authenticate = true;
    check_protection(&config, fds, PROTECTION_MAC);
    config.authenticate = false;
    config.encrypt = true;
    check_protection(&config, fds, PROTECTION_ENCRYPT);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* What the kernel keeps of a socket's bytes; it counts twice as much as was asked for, and never
 * more than it allows. */
static int kept_bytes(int fd)
{
    int size = 0;
    socklen_t n = sizeof size;

    ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &n), 0);
    return size;
}

START_TEST(little_is_under_way_within_a_host)
{
    const int much = 8 * TCP_NEAR_BYTES;
    int fds[2];

    if (!open_ends((Place)_i, fds)) {
        ck_assert_int_eq(_i, PLACE_LOOPBACK_6);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &much, sizeof much), 0);
        const int before = kept_bytes(fds[i]);
        tcp_stream_bound(fds[i]);
        if (_i == PLACE_NOWHERE)
            ck_assert_int_eq(kept_bytes(fds[i]), before);
        else
            ck_assert_int_eq(kept_bytes(fds[i]), MIN(before, 2 * TCP_NEAR_BYTES));
        close(fds[i]);
    }
}
END_TEST

/* The pieces of a packet, and that each opens as the next one. */
static void check_pieces(Protection protection, size_t size, size_t n_pieces)
{
    static const uint8_t key[SEAL_KEY_BYTES] = { 5 };
    g_autofree uint8_t *packet = g_malloc(size + 1);
    g_autoptr(GByteArray) stream = NULL;
    Seal sends, receives;
    size_t at = TCP_SIZE_BYTES, opened = 0;

    for (size_t i = 0; i < size; i++)
        packet[i] = (uint8_t)(i * 7 + (i >> 8));
    seal_init(&sends, protection, SEAL_XCHACHA20_POLY1305, key);
    seal_init(&receives, protection, SEAL_XCHACHA20_POLY1305, key);
    const size_t most = tcp_piece_bytes(&receives);
    stream = tcp_stream_packet(&sends, packet, size);
    ck_assert_uint_eq(stream->len, TCP_SIZE_BYTES + size + n_pieces * SEAL_TAG_BYTES);
    ck_assert_uint_eq(wire_load_u32(stream->data), size);
    for (size_t i = 0; i < n_pieces; i++) {
        const size_t n = MIN(most, size - opened);

        ck_assert(seal_open(&receives, stream->data + at, n, stream->data + at + n));
        ck_assert(memcmp(stream->data + at, packet + opened, n) == 0);
        at += n + SEAL_TAG_BYTES;
        opened += n;
    }
    ck_assert_uint_eq(opened, size);
}

START_TEST(an_encrypted_packet_is_cut_into_pieces_and_no_other_is)
{
    const size_t most = TCP_PIECE_BYTES;

    check_pieces(PROTECTION_ENCRYPT, 1, 1);
    check_pieces(PROTECTION_ENCRYPT, most, 1);
    check_pieces(PROTECTION_ENCRYPT, most + 1, 2);
    check_pieces(PROTECTION_ENCRYPT, 3 * most - 1, 3);
    check_pieces(PROTECTION_MAC, 3 * most, 1);
    check_pieces(PROTECTION_CHECKSUM, 3 * most, 1);
    check_pieces(PROTECTION_NONE, 3 * most, 1);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tcp_stream");
    TCase *const cases = tcase_create("tcp_stream");

    tcase_add_loop_test(cases, protection_is_what_is_asked_for_and_what_the_place_needs, 0,
                        N_PLACES);
    tcase_add_loop_test(cases, little_is_under_way_within_a_host, 0, N_PLACES);
    tcase_add_test(cases, an_encrypted_packet_is_cut_into_pieces_and_no_other_is);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
