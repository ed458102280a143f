/* Packets whose values are read straight to their place: they come whole however they are cut, and
 * nothing is read there any more once the place was taken back. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/network/tcp_line.h"
#include "tests/support/runner.h"

static const Protection protections[] = { PROTECTION_NONE, PROTECTION_CHECKSUM, PROTECTION_MAC,
                                          PROTECTION_ENCRYPT };

#define N_PROTECTIONS ((int)G_N_ELEMENTS(protections))

/* What the post office would be: it knows a place for the values of some packets. */
typedef struct {
    DirectReader reader;
    bool refuses;
    size_t n_first; /* values that stay with the head */
    uint8_t *place; /* of just so many bytes as the values have; NULL: in a test's own memory */
    size_t n_heads; /* that were shown */
    unsigned n_begun, n_ended;
    DirectRead *direct; /* NULL: none at this moment */
} Desk;

static bool begin(void *user, const Received *received, DirectRead *direct)
{
    Desk *const desk = user;

    ck_assert_ptr_null(desk->direct);
    ck_assert_uint_eq(received->node, 2);
    ck_assert_uint_eq(received->incarnation, 12);
    desk->n_heads++;
    if (desk->refuses)
        return false;
    const size_t n_bytes = received->size - DIRECT_HEAD_BYTES - desk->n_first;
    if (desk->place == NULL)
        desk->place = g_malloc(n_bytes);
    direct_read_start(direct, 1, desk->place, n_bytes);
    desk->direct = direct;
    desk->n_begun++;
    return true;
}

static void end(void *user, DirectRead *direct)
{
    Desk *const desk = user;

    ck_assert_ptr_eq(direct, desk->direct);
    desk->direct = NULL;
    desk->n_ended++;
}

static TcpLine open_line(Desk *desk, Protection protection)
{
    TcpLine line = tcp_line_open(protection);

    desk->reader = (DirectReader){ .begin = begin, .end = end, .user = desk };
    tcp_receiver_set_reader(line.receiver, &desk->reader);
    return line;
}

/* Whether this build can check such packets where they lie. Else they get blocks, and the case is
 * left out. */
static bool is_possible(TcpLine *line)
{
    if (seal_opens_apart(&line->receiver->receives))
        return true;
    tcp_line_close(line);
    return false;
}

/* The packet is number k, wherever its values lie. */
static void check_packet(const Received *received, size_t k, size_t size)
{
    const size_t n_head = received->values != NULL ? received->head_bytes : size;
    size_t n_wrong = 0;

    ck_assert_uint_eq(received->size, size);
    for (size_t i = 0; i < n_head; i++)
        n_wrong += received->bytes[i] != tcp_line_byte(k, i);
    for (size_t i = n_head; i < size; i++)
        n_wrong += received->values[i - n_head] != tcp_line_byte(k, i);
    ck_assert_uint_eq(n_wrong, 0);
}

/* Writes up to n bytes of the stream, reads once, and takes a packet if there is one. */
static bool go_on(TcpLine *line, const GByteArray *stream, size_t *at, size_t n, Received *received)
{
    const ssize_t written = write(line->fd, stream->data + *at, MIN(n, stream->len - *at));

    *at += written > 0 ? (size_t)written : 0;
    ck_assert(tcp_receiver_read(line->receiver));
    const bool is_there = tcp_receiver_take(line->receiver, received);
    ck_assert_ptr_null(line->receiver->fault);
    return is_there;
}

/* _i: protections, and the longest cuts. Small packets, large ones that are refused a place, and
 * large ones that get one, with some of their values or all. */
START_TEST(values_go_to_their_place_however_they_are_cut)
{
    static const size_t longest[] = { 500, 70000, 3000000 };
    static const size_t sizes[] = { 100,    40000,  524432, 32767, 32768, 32769,
                                    524432, 524432, 8,      70000, 70000 };
    enum { N = G_N_ELEMENTS(sizes) };
    g_autoptr(GRand) random = g_rand_new_with_seed((guint32)_i);
    Desk desk = { 0 };
    TcpLine line = open_line(&desk, protections[_i / (int)G_N_ELEMENTS(longest)]);
    g_autoptr(GByteArray) stream = tcp_line_stream(&line, sizes, N);
    const gint32 most = (gint32)longest[_i % (int)G_N_ELEMENTS(longest)];
    size_t at = 0, k = 0, n_direct = 0;
    Received received;

    if (!is_possible(&line))
        return;
    while (k < N) {
        const size_t wanted = (size_t)g_rand_int_range(random, 1, most + 1);

        desk.refuses = k % 3 == 2;
        desk.n_first = k % 2 * NETWORK_DIRECT_FIRST_BYTES;
        if (!go_on(&line, stream, &at, wanted, &received))
            continue;
        do {
            check_packet(&received, k, sizes[k]);
            ck_assert_ptr_eq(received.values, desk.place);
            n_direct += received.values != NULL;
            received.ops->release(&received);
            g_clear_pointer(&desk.place, g_free);
            k++;
            desk.refuses = k % 3 == 2;
            desk.n_first = k % 2 * NETWORK_DIRECT_FIRST_BYTES;
        } while (tcp_receiver_take(line.receiver, &received));
    }
    ck_assert_uint_eq(n_direct, 6); /* of at least 32 kB, and not refused */
    ck_assert_uint_eq(desk.n_begun, n_direct);
    ck_assert_uint_eq(desk.n_ended, n_direct);
    ck_assert(tcp_receiver_is_empty(line.receiver));
    tcp_line_close(&line);
}
END_TEST

static const size_t revoked_at[] = { 0, 1, 65536, 70000, 200000, 299999, 300000 };

/* _i: protections, and how much of the packet has come. Its place is freed at once. */
START_TEST(revoked_read_goes_on_elsewhere)
{
    static const size_t sizes[] = { 300000, 50000, 10 };
    const size_t limit =
        TCP_SIZE_BYTES + DIRECT_MOST_HEAD_BYTES + revoked_at[_i % (int)G_N_ELEMENTS(revoked_at)];
    Desk desk = { 0 };
    TcpLine line = open_line(&desk, protections[_i / (int)G_N_ELEMENTS(revoked_at)]);
    g_autoptr(GByteArray) stream = tcp_line_stream(&line, sizes, G_N_ELEMENTS(sizes));
    Received received;
    size_t at = 0;

    if (!is_possible(&line))
        return;
    desk.n_first = (size_t)_i % 2 * NETWORK_DIRECT_FIRST_BYTES;
    while (at < MIN(limit, sizes[0]))
        ck_assert(!go_on(&line, stream, &at, MIN(limit, sizes[0]) - at, &received));
    ck_assert_ptr_nonnull(desk.direct);
    direct_read_revoke(desk.direct);
    direct_read_revoke(desk.direct); /* once more changes nothing */
    const uint8_t *const place = desk.place;
    g_clear_pointer(&desk.place, g_free);
    for (size_t k = 0; k < G_N_ELEMENTS(sizes); k++) {
        while (!go_on(&line, stream, &at, stream->len - at, &received))
            ;
        check_packet(&received, k, sizes[k]);
        ck_assert(k > 0 || received.values != place);
        received.ops->release(&received);
    }
    ck_assert_uint_eq(desk.n_begun, 2);
    ck_assert_uint_eq(desk.n_ended, 2);
    g_free(desk.place);
    tcp_line_close(&line);
}
END_TEST

/* _i: whether its place was taken back before. */
START_TEST(connection_that_ends_lets_go_of_the_place)
{
    static const size_t sizes[] = { 300000 };
    Desk desk = { 0 };
    TcpLine line = open_line(&desk, PROTECTION_NONE);
    g_autoptr(GByteArray) stream = tcp_line_stream(&line, sizes, 1);
    Received received;
    size_t at = 0;

    while (at < 100000)
        ck_assert(!go_on(&line, stream, &at, 100000 - at, &received));
    ck_assert_uint_eq(desk.n_begun, 1);
    if (_i == 1)
        direct_read_revoke(desk.direct);
    tcp_line_close(&line);
    ck_assert_uint_eq(desk.n_ended, 1);
    g_free(desk.place);
}
END_TEST

/* _i: where a bit is changed: in the size, the head, the values, the tag. Without a checksum only
 * the size and the tag are looked at. */
START_TEST(changed_packet_is_not_handed_over)
{
    static const size_t sizes[] = { 300000, 300000 };
    const Protection protection = protections[_i / 4];
    const size_t at_of[] = { 1, TCP_SIZE_BYTES + 100, 200000,
                             TCP_SIZE_BYTES + sizes[0] + SEAL_TAG_BYTES - 9 };
    Desk desk = { 0 };
    TcpLine line = open_line(&desk, protection);
    g_autoptr(GByteArray) stream = tcp_line_stream(&line, sizes, 2);
    Received received;
    size_t at = 0;

    if (!is_possible(&line))
        return;
    if (protection == PROTECTION_NONE && (_i % 4 == 1 || _i % 4 == 2)) {
        tcp_line_close(&line);
        return;
    }
    stream->data[at_of[_i % 4]] ^= 1;
    while (line.receiver->fault == NULL) {
        const ssize_t n = write(line.fd, stream->data + at, stream->len - at);

        at += n > 0 ? (size_t)n : 0;
        ck_assert(tcp_receiver_read(line.receiver));
        ck_assert(!tcp_receiver_take(line.receiver, &received));
    }
    ck_assert_uint_eq(desk.n_begun, 1);
    tcp_line_close(&line);
    ck_assert_uint_eq(desk.n_ended, 1);
    g_free(desk.place);
}
END_TEST

/* The caller's memory is not there: the read goes on in a block, and the caller finds out when its
 * rows are copied. */
START_TEST(place_that_cannot_be_written_to_stops_no_connection)
{
    static const size_t sizes[] = { 300000, 10 };
    const size_t first = (size_t)sysconf(_SC_PAGESIZE) * 3, all = first + sizes[0];
    Desk desk = { 0 };
    TcpLine line = open_line(&desk, PROTECTION_NONE);
    g_autoptr(GByteArray) stream = tcp_line_stream(&line, sizes, 2);
    Received received;
    size_t at = 0;

    desk.place = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(desk.place, MAP_FAILED);
    ck_assert_int_eq(mprotect(desk.place, first, PROT_READ | PROT_WRITE), 0);
    /* few bytes at first, so that they are there before the page that cannot be written to */
    ck_assert(!go_on(&line, stream, &at, first / 2, &received));
    ck_assert_uint_eq(desk.n_begun, 1);
    for (size_t k = 0; k < 2; k++) {
        while (!go_on(&line, stream, &at, stream->len - at, &received))
            ;
        check_packet(&received, k, sizes[k]);
        ck_assert(received.values != desk.place);
        received.ops->release(&received);
    }
    ck_assert_uint_eq(desk.n_ended, 1);
    munmap(desk.place, all);
    tcp_line_close(&line);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tcp_direct");
    TCase *const all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, values_go_to_their_place_however_they_are_cut, 0, 3 * N_PROTECTIONS);
    tcase_add_loop_test(all, revoked_read_goes_on_elsewhere, 0,
                        (int)G_N_ELEMENTS(revoked_at) * N_PROTECTIONS);
    tcase_add_loop_test(all, connection_that_ends_lets_go_of_the_place, 0, 2);
    tcase_add_loop_test(all, changed_packet_is_not_handed_over, 0, 4 * N_PROTECTIONS);
    tcase_add_test(all, place_that_cannot_be_written_to_stops_no_connection);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
