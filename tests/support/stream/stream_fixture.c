#include "tests/support/stream/stream_fixture.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/port_pair.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { STREAM_WIDTH = 64 }; /* versions of several pieces */

StreamFixture stream;

void stream_set_up(void)
{
    stream.directory = g_build_filename(stream.temporary, "versions", NULL);
    stream.port = find_port_pair();
    stream.rest = g_strdup_printf("tcp://127.0.0.1:%u", stream.port);
    stream.uri = g_strconcat("zmq:", stream.rest, NULL);
    stream.engine = engine_with_servers(1);
    stream_create_table(1);
}

void stream_create_table(uint32_t parts)
{
    create_table(stream.engine, &(RubatoTableSpec){ .name = "n",
                                                    .dtype = RUBATO_I64,
                                                    .width = STREAM_WIDTH,
                                                    .n_keys = STREAM_KEYS,
                                                    .parts = parts });
}

void stream_tear_down(void)
{
    rubato_engine_free(stream.engine);
    remove_tree(stream.directory);
    g_free(stream.directory);
    g_free(stream.rest);
    g_free(stream.uri);
}

/* ---- versions ---- */

void stream_write(uint32_t full_every, uint32_t keep)
{
    const RubatoSnapshotSpec spec = { .directory = stream.directory,
                                      .full_every = full_every,
                                      .keep = keep };
    g_autofree RubatoKey *keys = g_new(RubatoKey, STREAM_KEYS);
    g_autofree int64_t *ones = g_new(int64_t, STREAM_KEYS * STREAM_WIDTH);

    for (size_t i = 0; i < STREAM_KEYS; i++)
        keys[i] = i;
    for (size_t i = 0; i < (size_t)STREAM_KEYS * STREAM_WIDTH; i++)
        ones[i] = 1;
    ck_assert(rubato_engine_add(stream.engine, "n", keys, STREAM_KEYS, ones, NULL));
    ck_assert(rubato_engine_snapshot(stream.engine, &spec, NULL, NULL));
}

RubatoStreamWriter *stream_publish(void)
{
    g_autoptr(GError) error = NULL;
    RubatoStreamWriter *const writer = zmq_publisher_open(stream.rest, stream.directory, &error);

    ck_assert_msg(writer != NULL, "%s", error != NULL ? error->message : "");
    return writer;
}

void stream_go_on(RubatoStreamWriter *writer, uint32_t full_every, uint32_t keep)
{
    stream_write(full_every, keep);
    zmq_publisher_tell(writer, 0);
}

RubatoFollower *stream_follow(void)
{
    g_autoptr(GError) error = NULL;
    RubatoFollower *const follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = stream.uri }, &error);

    ck_assert_msg(follower != NULL, "%s", error != NULL ? error->message : "");
    return follower;
}

void stream_check_rows(RubatoFollower *follower, int64_t value)
{
    const RubatoKey keys[] = { 0, STREAM_KEYS - 1 };
    int64_t values[2 * STREAM_WIDTH];

    ck_assert(rubato_follower_get(follower, "n", keys, 2, values, NULL, NULL, NULL));
    for (size_t i = 0; i < 2 * STREAM_WIDTH; i++)
        ck_assert_int_eq(values[i], value);
}

int stream_advance_to(RubatoFollower *follower, uint64_t version)
{
    RubatoFollowed followed;
    int n_anew = 0;

    while (rubato_follower_version(follower, NULL) != version) {
        g_autoptr(GError) error = NULL;
        const bool ok = rubato_follower_advance(follower, STREAM_WAIT_S, &followed, &error);

        ck_assert_msg(ok, "%s", error != NULL ? error->message : "");
        ck_assert_int_ne(followed, RUBATO_FOLLOWED_NOTHING);
        stream_check_rows(follower, (int64_t)rubato_follower_version(follower, NULL));
        n_anew += followed == RUBATO_FOLLOWED_ANEW;
    }
    return n_anew;
}

void stream_expect_fault(RubatoFollower *follower, RubatoError code, const char *text)
{
    for (int i = 0; i < STREAM_WAIT_S * 20; i++) {
        RubatoFollowed followed;
        GError *error = NULL;

        if (rubato_follower_advance(follower, .05, &followed, &error))
            continue;
        check_error(&error, code, text, NULL);
        return;
    }
    ck_abort_msg("nothing is told");
}

/* ---- sockets ---- */

void *stream_open_socket(void *context, int type, unsigned number, bool binds)
{
    void *const socket = zmq_socket(context, type);
    g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%u", number);
    const int no_linger = 0;

    zmq_setsockopt(socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
    ck_assert_int_eq(binds ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint), 0);
    return socket;
}

void stream_send(void *socket, const StreamMessage *message, int flags)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);

    stream_message_write(&bytes, message);
    ck_assert_int_ge(zmq_send(socket, bytes.bytes, bytes.n, flags), 0);
}

StreamMessageKind stream_ask(void *socket, const StreamMessage *question, void *part)
{
    static uint64_t last_id;
    zmq_pollitem_t item = { .socket = socket, .events = ZMQ_POLLIN };
    StreamMessage asked = *question, answer = { .id = 0 };

    asked.id = ++last_id;
    zmq_msg_init(part);
    stream_send(socket, &asked, 0);
    while (answer.id != asked.id) { /* of those before some may have come late */
        while (zmq_poll(&item, 1, 5000) == 0)
            stream_send(socket, &asked, 0);
        ck_assert_int_ge(zmq_msg_recv(part, socket, 0), 0);
        ck_assert(stream_message_read(zmq_msg_data(part), zmq_msg_size(part), &answer));
    }
    return answer.kind;
}

/* ---- the suite ---- */

/* It is set before anybody asks GLib, which keeps the answer. */
static void make_temporary(void)
{
    const char *const usual = getenv("TMPDIR");

    stream.temporary = g_strconcat(usual != NULL ? usual : "/tmp", "/rubato-zmq-XXXXXX", NULL);
    if (g_mkdtemp(stream.temporary) == NULL || setenv("TMPDIR", stream.temporary, 1) != 0)
        g_error("%s cannot be made", stream.temporary);
}

int stream_run_suite(Suite *suite)
{
    make_temporary();
    const int status = run_suite(suite);

    remove_tree(stream.temporary);
    g_free(stream.temporary);
    return status;
}
