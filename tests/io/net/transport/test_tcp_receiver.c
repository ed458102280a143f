/* A connection's packets, with bytes that are cut anywhere on their way. */
#include <string.h>
#include <unistd.h>

#include "tests/support/network/tcp_line.h"
#include "tests/support/runner.h"

static void check_packet(const Received *received, size_t k, size_t size)
{
    require_msg(received->size == size, "packet %zu has %zu bytes", k, received->size);
    for (size_t i = 0; i < size; i++)
        require_msg(received->bytes[i] == tcp_line_byte(k, i), "byte %zu of packet %zu", i, k);
}

/* Takes what has come; returns how many packets there have been so far. */
static size_t take_all(TcpReceiver *receiver, const size_t *sizes, size_t n, size_t k)
{
    Received received;

    while (tcp_receiver_take(receiver, &received)) {
        require_msg(k < n, "a packet that nobody sent");
        check_packet(&received, k, sizes[k]);
        ck_assert_str_eq(received.ops->address(&received), "10.0.0.1");
        ck_assert_uint_eq(received.node, 2);
        ck_assert_uint_eq(received.incarnation, 12);
        ck_assert_uint_eq(received.connection, 7);
        received.ops->release(&received);
        k++;
    }
    ck_assert_ptr_null(receiver->fault);
    return k;
}

START_TEST(packets_are_whole_however_they_are_cut)
{
    static const size_t longest[] = { 3, 100, 5000, 70000, 3000000 };
    static const size_t edges[] = {
        0,  1,      8191,   8192,   8193,    65535,   65536,   65537,
        20, 131072, 131073, 262144, 1048575, 1048576, 1048577, 5000000
    };
    enum { N = 40 };
    GRand *const random = g_rand_new_with_seed((guint32)_i);
    size_t sizes[N];
    TcpLine line = tcp_line_open((Protection)(_i / 5));

    for (size_t k = 0; k < N; k++)
        sizes[k] = k < G_N_ELEMENTS(edges)
                       ? edges[k]
                       : (size_t)g_rand_int_range(random, 0, k % 5 == 0 ? 200000 : 300);
    GByteArray *const stream = tcp_line_stream(&line, sizes, N);
    const gint32 most = (gint32)longest[_i % 5];
    /* so that it takes a moment, not minutes: the shortest cuts see the beginning alone */
    const size_t n_cuts = is_slow() ? 5000 : 20000;
    const size_t end = MIN(stream->len, (size_t)most * n_cuts);
    size_t at = 0, k = 0;

    while (at < end) {
        const size_t wanted = (size_t)g_rand_int_range(random, 1, most + 1);
        const size_t size = MIN(end - at, wanted);
        const ssize_t n = write(line.fd, stream->data + at, size);
        at += n > 0 ? (size_t)n : 0;
        ck_assert(tcp_receiver_read(line.receiver));
        k = take_all(line.receiver, sizes, N, k);
    }
    while (k < N && end == stream->len) {
        ck_assert(tcp_receiver_read(line.receiver));
        k = take_all(line.receiver, sizes, N, k);
    }
    ck_assert_uint_gt(k, 2);
    ck_assert(!tcp_receiver_is_midway(line.receiver) || end < stream->len);
    g_byte_array_unref(stream);
    g_rand_free(random);
    tcp_line_close(&line);
}
END_TEST

START_TEST(what_came_before_the_end_is_taken)
{
    static const size_t sizes[] = { 100, 9000, 5 };
    TcpLine line = tcp_line_open(PROTECTION_CHECKSUM);
    GByteArray *const stream = tcp_line_stream(&line, sizes, 3);
    size_t k = 0;

    ck_assert_int_eq(write(line.fd, stream->data, stream->len - 1), (ssize_t)stream->len - 1);
    close(line.fd);
    line.fd = -1;
    while (tcp_receiver_read(line.receiver))
        k = take_all(line.receiver, sizes, 3, k);
    ck_assert_uint_eq(k, 2);
    g_byte_array_unref(stream);
    tcp_line_close(&line);
}
END_TEST

/* Large packets outlive their connection; the pool has their blocks back. */
START_TEST(large_packets_are_moved_and_given_back)
{
    static const size_t sizes[] = { 300000 };
    TcpLine line = tcp_line_open(PROTECTION_CHECKSUM);
    GByteArray *const stream = tcp_line_stream(&line, sizes, 1);
    Received received, moved;
    size_t at = 0;

    do {
        const ssize_t n = write(line.fd, stream->data + at, stream->len - at);
        at += n > 0 ? (size_t)n : 0;
        ck_assert(tcp_receiver_read(line.receiver));
    } while (!tcp_receiver_take(line.receiver, &received));
    ck_assert(!received.lent);
    received.ops->move(&moved, &received);
    memset(&received, 0xee, sizeof received);
    tcp_receiver_free(line.receiver);
    line.receiver = tcp_receiver_new(8, dup(line.fd), line.epoll_fd, "", line.pool, &TCP_LINE_OWN);
    check_packet(&moved, 0, sizes[0]);
    ck_assert_str_eq(moved.ops->address(&moved), "10.0.0.1");
    ck_assert_uint_eq(block_pool_kept_bytes(line.pool), 0);
    moved.ops->release(&moved);
    ck_assert_uint_ge(block_pool_kept_bytes(line.pool), sizes[0]);
    g_byte_array_unref(stream);
    tcp_line_close(&line);
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    const char *fault;
} nonsense[] = {
    { "X", 1, "it does not begin like a node's connection" },
    { "RBTOTCP1\0\0\0\x40", 12, "it does not begin like a node's connection" },
    { "RBTOHA", 6, NULL },
};

/* Before the other end has proved anything, no memory grows, whatever size it announces. */
START_TEST(nonsense_before_the_proof_is_a_fault_and_costs_no_memory)
{
    TcpLine line = tcp_line_open_silent();
    Received received;

    ck_assert_int_eq(write(line.fd, nonsense[_i].bytes, nonsense[_i].size),
                     (ssize_t)nonsense[_i].size);
    ck_assert_int_eq(tcp_receiver_read(line.receiver), nonsense[_i].fault == NULL);
    ck_assert(!tcp_receiver_take(line.receiver, &received));
    ck_assert_str_eq(line.receiver->fault != NULL ? line.receiver->fault : "",
                     nonsense[_i].fault != NULL ? nonsense[_i].fault : "");
    ck_assert_ptr_null(line.receiver->buffer);
    ck_assert_ptr_null(line.receiver->block);
    ck_assert_uint_le(sizeof *line.receiver, 64 << 10);
    tcp_line_close(&line);
}
END_TEST

static const struct {
    uint32_t size;
    const char *fault;
} announced[] = {
    { (1u << 30) + 1, "it announces a packet that is larger than any" },
    { 1u << 30, NULL }, /* as large as may be, and nothing of it is there */
};

START_TEST(announced_packet_costs_no_memory_until_it_comes)
{
    TcpLine line = tcp_line_open(PROTECTION_MAC);
    uint8_t head[TCP_SIZE_BYTES];
    Received received;

    wire_store_u32(head, announced[_i].size);
    ck_assert_int_eq(write(line.fd, head, sizeof head), sizeof head);
    ck_assert(tcp_receiver_read(line.receiver));
    ck_assert(!tcp_receiver_take(line.receiver, &received));
    ck_assert_str_eq(line.receiver->fault != NULL ? line.receiver->fault : "",
                     announced[_i].fault != NULL ? announced[_i].fault : "");
    ck_assert_uint_le(line.receiver->block_bytes, 1 << 20);
    tcp_line_close(&line);
}
END_TEST

static const size_t changed_sizes[] = { 1, 100, 8192, 8193, 200000 };

/* An attacker between the two changes a bit of the size, the bytes or the tag. */
START_TEST(changed_packet_is_a_fault)
{
    const Protection protection = (Protection)(PROTECTION_CHECKSUM + _i % 3);
    const size_t size = changed_sizes[_i / 3];

    for (unsigned where = 0; where < 3; where++) {
        TcpLine line = tcp_line_open(protection);
        GByteArray *const stream = tcp_line_stream(&line, &size, 1);
        const size_t at_of[] = { 0, TCP_SIZE_BYTES + size / 2, stream->len - SEAL_TAG_BYTES };
        Received received;
        size_t at = 0;

        stream->data[at_of[where]] ^= where == 0 ? 1 : 0x20;
        const guint n_more = MIN(stream->len, 100); /* what a longer one takes */
        g_autofree uint8_t *more = g_memdup2(stream->data, n_more);
        g_byte_array_append(stream, more, n_more);
        bool is_given = false;
        while (at < stream->len && line.receiver->fault == NULL) {
            const ssize_t n = write(line.fd, stream->data + at, stream->len - at);
            at += n > 0 ? (size_t)n : 0;
            for (unsigned i = 0; i < 8 && line.receiver->fault == NULL; i++) {
                ck_assert(tcp_receiver_read(line.receiver));
                is_given |= tcp_receiver_take(line.receiver, &received);
            }
        }
        ck_assert(!is_given);
        ck_assert_str_eq(line.receiver->fault, protection == PROTECTION_CHECKSUM
                                                   ? "the checksum of a packet is wrong"
                                                   : "a packet is not as its sender has sealed it");
        g_byte_array_unref(stream);
        tcp_line_close(&line);
    }
}
END_TEST

START_TEST(answer_goes_back_on_the_connection)
{
    static const size_t sizes[] = { 1, 1000, 140000 };
    TcpLine line = tcp_line_open((Protection)_i);

    for (size_t k = 0; k < G_N_ELEMENTS(sizes); k++) {
        Packet *const packet = packet_new(sizes[k]);
        for (size_t i = 0; i < sizes[k]; i++)
            packet->bytes[i] = tcp_line_byte(k, i);
        ck_assert(tcp_receiver_answer(line.receiver, packet));
        for (unsigned i = 0; i < 1000 && tcp_receiver_has_answer(line.receiver); i++)
            ck_assert(tcp_receiver_write(line.receiver));
        packet_unref(packet);
        g_autoptr(GByteArray) came = tcp_hand_pull(&line.hand);
        ck_assert_ptr_nonnull(came);
        ck_assert_uint_eq(came->len, sizes[k]);
        ck_assert_uint_eq(came->data[came->len - 1], tcp_line_byte(k, sizes[k] - 1));
    }
    tcp_line_close(&line);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tcp_receiver");
    TCase *const all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, packets_are_whole_however_they_are_cut, 0, 20);
    tcase_add_test(all, what_came_before_the_end_is_taken);
    tcase_add_test(all, large_packets_are_moved_and_given_back);
    tcase_add_loop_test(all, nonsense_before_the_proof_is_a_fault_and_costs_no_memory, 0,
                        (int)G_N_ELEMENTS(nonsense));
    tcase_add_loop_test(all, announced_packet_costs_no_memory_until_it_comes, 0,
                        (int)G_N_ELEMENTS(announced));
    tcase_add_loop_test(all, changed_packet_is_a_fault, 0, 3 * (int)G_N_ELEMENTS(changed_sizes));
    tcase_add_loop_test(all, answer_goes_back_on_the_connection, 0, 4);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
