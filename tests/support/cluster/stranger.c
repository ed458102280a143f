/* A stranger's hands. */
#include "tests/support/cluster/stranger.h"

#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int stranger_connect(uint16_t port)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons(port),
                                         .sin_addr = { htonl(INADDR_LOOPBACK) } };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

TcpHand stranger_connect_as_node(uint16_t port)
{
    TcpHand hand;

    ck_assert(tcp_hand_shake(&hand, stranger_connect(port), NULL));
    return hand;
}

void stranger_push(TcpHand *hand, const void *bytes, size_t size)
{
    (void)tcp_hand_push(hand, bytes, size);
}

void stranger_push_greeting(TcpHand *hand, GVariant *body)
{
    g_autoptr(GVariant) boxed = g_variant_ref_sink(g_variant_new_variant(body));
    const gsize size = g_variant_get_size(boxed);
    g_autofree uint8_t *bytes = g_malloc0(WIRE_PREFIX_BYTES + size);

    wire_write_greeting_prefix(bytes, WIRE_VERSION, (uint32_t)size);
    g_variant_store(boxed, bytes + WIRE_PREFIX_BYTES);
    stranger_push(hand, bytes, WIRE_PREFIX_BYTES + size);
}

void stranger_greet(TcpHand *hand, uint32_t i)
{
    g_autofree char *description = g_strnfill(200, 'x');
    g_autofree char *endpoint =
        g_strdup_printf("tcp://127.%u.%u.%u:9", 1 + i / 65536 % 250, i / 256 % 256, i % 256);
    const Control hello = { .kind = CONTROL_HELLO,
                            .hello = { .node_id = 1000 + i,
                                       .incarnation = i,
                                       .endpoints = endpoint,
                                       .description = description,
                                       .digest = "none" } };
    GVariant *body = control_greeting(&hello);

    stranger_push_greeting(hand, body);
    g_variant_unref(body);
}

void stranger_be_refused(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);
    const Control hello = { .kind = CONTROL_HELLO,
                            .hello = {
                                .node_id = 1234, .endpoints = "the moon", .digest = "none" } };
    GVariant *body = control_greeting(&hello);

    stranger_push_greeting(&hand, body);
    g_variant_unref(body);
    g_autoptr(GByteArray) answer = tcp_hand_pull(&hand);
    ck_assert_ptr_nonnull(answer);
    ck_assert_uint_gt(answer->len, WIRE_PREFIX_BYTES);
    close(hand.fd);
}

long stranger_resident_kb(pid_t pid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)pid);
    g_autofree char *text = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    const char *const at = strstr(text, "VmRSS:");
    ck_assert_ptr_nonnull(at);
    return strtol(at + strlen("VmRSS:"), NULL, 10);
}
