/* Streams over ZeroMQ: strangers, and publishers that lie or are slow. Followers get what they
 * should, or say why they do not.
 *
 * docs/security.md: Streams over ZeroMQ */
#include <check.h>
#include <string.h>
#include <zmq.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/stream/stream_fixture.h"

/* Strangers say nonsense, and ask for what there is not; those who follow notice nothing. */
START_TEST(strangers_get_nothing_that_is_no_version)
{
    static const struct {
        StreamMessage question;
        StreamMessageKind kind;
    } questions[] = {
        { { .kind = STREAM_MESSAGE_ASK_LIST, .number = UINT64_MAX }, STREAM_MESSAGE_LIST },
        { { .kind = STREAM_MESSAGE_ASK_BYTES, .number = 1, .seed = 0, .n = 9 },
          STREAM_MESSAGE_GONE },
        { { .kind = STREAM_MESSAGE_ASK_BYTES, .number = UINT64_MAX, .n = 9 }, STREAM_MESSAGE_GONE },
    };
    void *const context = zmq_ctx_new();
    void *stranger;
    RubatoStreamWriter *writer;

    stream_write(4, 0);
    writer = stream_publish();
    stranger = stream_open_socket(context, ZMQ_DEALER, stream.port + 1, false);
    g_autoptr(RubatoFollower) follower = stream_follow();
    ck_assert_int_ge(zmq_send(stranger, "", 0, 0), 0);
    ck_assert_int_ge(zmq_send(stranger, "nonsense", 8, 0), 0);
    stream_send(stranger, &(StreamMessage){ .kind = STREAM_MESSAGE_LIST }, 0);
    stream_send(stranger, &(StreamMessage){ .kind = STREAM_MESSAGE_ASK_LIST }, ZMQ_SNDMORE);
    ck_assert_int_ge(zmq_send(stranger, "more", 4, 0), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(questions); i++) {
        zmq_msg_t part;

        ck_assert_int_eq(stream_ask(stranger, &questions[i].question, &part), questions[i].kind);
        zmq_msg_close(&part);
    }
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    zmq_close(stranger);
    zmq_ctx_term(context);
    zmq_publisher_close(writer);
}
END_TEST

/* The first version that is listed. has: the newest that the asker has, which the publisher waits
 * for at its end. */
static void ask_list(void *socket, uint64_t has, ListedVersion *first)
{
    const StreamMessage question = { .kind = STREAM_MESSAGE_ASK_LIST, .number = has };
    StreamMessage answer;
    zmq_msg_t part;

    ck_assert_int_eq(stream_ask(socket, &question, &part), STREAM_MESSAGE_LIST);
    ck_assert(stream_message_read(zmq_msg_data(&part), zmq_msg_size(&part), &answer));
    g_autofree ListedVersion *versions = g_new0(ListedVersion, answer.n + 1);
    ck_assert(stream_message_read_versions(&answer, versions));
    zmq_msg_close(&part);
    *first = versions[0];
}

/* So who needs long for all rows gets them, although no version stays for as long; but not one that
 * he has not begun with. */
START_TEST(version_that_is_being_fetched_stays)
{
    const bool has_begun = _i == 0;
    void *const context = zmq_ctx_new();
    StreamMessage question = { .kind = STREAM_MESSAGE_ASK_BYTES, .n = 9 };
    ListedVersion first, later;
    RubatoStreamWriter *writer;
    void *socket;
    zmq_msg_t part;

    stream_write(1, 1);
    writer = stream_publish();
    socket = stream_open_socket(context, ZMQ_DEALER, stream.port + 1, false);
    ask_list(socket, 0, &first);
    question.number = first.number;
    question.seed = first.seed;
    question.table = STREAM_MANIFEST;
    if (has_begun) {
        ck_assert_int_eq(stream_ask(socket, &question, &part), STREAM_MESSAGE_BYTES);
        zmq_msg_close(&part);
    }
    stream_go_on(writer, 1, 1);
    do /* it is told soon; then the first one is gone */
        ask_list(socket, 2, &later);
    while (later.number != 2);
    question.table = 0;
    ck_assert_int_eq(stream_ask(socket, &question, &part),
                     has_begun ? STREAM_MESSAGE_BYTES : STREAM_MESSAGE_GONE);
    zmq_msg_close(&part);
    zmq_close(socket);
    zmq_ctx_term(context);
    zmq_publisher_close(writer);
}
END_TEST

/* ---- a publisher that lies ---- */

/* What it answers to the questions of a reader. */
typedef enum {
    LIE_NO_LIST,
    LIE_LONG_BYTES, /* more than was asked for */
    LIE_NO_MANIFEST,
    N_LIES,
} Lie;

static const char *const told[] = { [LIE_NO_LIST] = "what came is no list",
                                    [LIE_LONG_BYTES] = "what came is not what was asked for",
                                    [LIE_NO_MANIFEST] = "manifest" };

static void answer_with_lie(void *router, Lie lie, const StreamMessage *asked)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(4096);
    StreamMessage answer = *asked;

    if (asked->kind == STREAM_MESSAGE_ASK_LIST && lie != LIE_NO_LIST) {
        answer = (StreamMessage){ .kind = STREAM_MESSAGE_LIST, .id = asked->id, .n = 1 };
        stream_message_write(&bytes, &answer);
        stream_message_write_version(&bytes, &(ListedVersion){ 5, 50, 0, 0 });
    } else {
        answer.kind = STREAM_MESSAGE_BYTES;
        answer.offset = lie == LIE_LONG_BYTES ? 1 : 0;
        answer.n = 9;
        stream_message_write(&bytes, &answer);
        rubato_write(&bytes, "../../etc", 9);
    }
    ck_assert_int_ge(zmq_send(router, bytes.bytes, bytes.n, 0), 0);
}

/* Until it has told why it believes none of it. */
START_TEST(publisher_that_lies_is_not_believed)
{
    void *const context = zmq_ctx_new();
    void *const news = stream_open_socket(context, ZMQ_XPUB, stream.port, true);
    void *const router = stream_open_socket(context, ZMQ_ROUTER, stream.port + 1, true);
    g_autoptr(RubatoFollower) follower = stream_follow();
    GError *error = NULL;

    do {
        zmq_pollitem_t items[] = { { .socket = router, .events = ZMQ_POLLIN } };
        unsigned char id[64], bytes[256];
        StreamMessage asked;
        RubatoFollowed followed;
        int n_id, n;

        stream_send(news, &(StreamMessage){ .kind = STREAM_MESSAGE_NEWEST, .number = 5 }, 0);
        (void)zmq_poll(items, 1, 50);
        n_id = zmq_recv(router, id, sizeof id, ZMQ_DONTWAIT);
        if (n_id >= 0) {
            n = zmq_recv(router, bytes, sizeof bytes, 0);
            ck_assert(stream_message_read(bytes, (size_t)n, &asked));
            ck_assert_int_ge(zmq_send(router, id, (size_t)n_id, ZMQ_SNDMORE), 0);
            answer_with_lie(router, (Lie)_i, &asked);
        }
        (void)rubato_follower_advance(follower, 0, &followed, &error);
        if (error != NULL && strstr(error->message, told[_i]) == NULL)
            g_clear_error(&error);
    } while (error == NULL);
    g_error_free(error);
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 0);
    zmq_close(news);
    zmq_close(router);
    zmq_ctx_term(context);
}
END_TEST

/* The answers take longer than silence does, and nobody tells news meanwhile. What is wrong then is
 * that the version is gone. */
START_TEST(fetching_for_long_is_no_silence)
{
    enum { ANSWER_MS = 1800 };
    void *const context = zmq_ctx_new();
    void *const news = stream_open_socket(context, ZMQ_XPUB, stream.port, true);
    void *const router = stream_open_socket(context, ZMQ_ROUTER, stream.port + 1, true);
    g_autofree void *zeros = g_malloc0(STREAM_MOST_BYTES);
    g_autoptr(RubatoFollower) follower = stream_follow();
    unsigned char id[64], bytes[256];
    int n_id = -1;

    while (n_id < 0) {
        zmq_pollitem_t items[] = { { .socket = router, .events = ZMQ_POLLIN } };

        stream_send(news, &(StreamMessage){ .kind = STREAM_MESSAGE_NEWEST, .number = 5 }, 0);
        (void)zmq_poll(items, 1, 50);
        n_id = zmq_recv(router, id, sizeof id, ZMQ_DONTWAIT);
    }
    for (int i = 0; i < 5; i++) { /* the list, three pieces of a manifest, and no more */
        g_auto(RubatoByteWriter) message = rubato_byte_writer_new(STREAM_MOST_ANSWER);
        StreamMessage answer;
        const int n = zmq_recv(router, bytes, sizeof bytes, 0);

        ck_assert(stream_message_read(bytes, (size_t)n, &answer));
        if (i == 0) {
            answer = (StreamMessage){ .kind = STREAM_MESSAGE_LIST, .id = answer.id, .n = 1 };
            stream_message_write(&message, &answer);
            stream_message_write_version(&message, &(ListedVersion){ 5, 50, 0, 0 });
        } else {
            answer.kind = i < 4 ? STREAM_MESSAGE_BYTES : STREAM_MESSAGE_GONE;
            answer.n = i < 4 ? answer.n : 0; /* as many as are asked for */
            stream_message_write(&message, &answer);
            rubato_write(&message, zeros, answer.n);
        }
        if (i > 0)
            (void)zmq_poll(NULL, 0, ANSWER_MS);
        ck_assert_int_ge(zmq_send(router, id, (size_t)n_id, ZMQ_SNDMORE), 0);
        ck_assert_int_ge(zmq_send(router, message.bytes, message.n, 0), 0);
        if (i < 4)
            ck_assert_int_eq(zmq_recv(router, id, sizeof id, 0), n_id);
    }
    stream_expect_fault(follower, RUBATO_ERROR_NETWORK, "removed while it was fetched");
    zmq_close(news);
    zmq_close(router);
    zmq_ctx_term(context);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("zmq_malice");
    TCase *const cases = tcase_create("what is said is wrong, or late");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, stream_set_up, stream_tear_down);
    tcase_add_test(cases, strangers_get_nothing_that_is_no_version);
    tcase_add_loop_test(cases, version_that_is_being_fetched_stays, 0, 2);
    tcase_add_loop_test(cases, publisher_that_lies_is_not_believed, 0, N_LIES);
    tcase_add_test(cases, fetching_for_long_is_no_silence);
    suite_add_tcase(suite, cases);
    return stream_run_suite(suite);
}
