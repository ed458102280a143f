/* Streams over ZeroMQ: a follower gets each version once and in order, whatever is missed, gone,
 * cut off or forged.
 *
 * docs/security.md: Streams over ZeroMQ */
#include <check.h>
#include <glib/gstdio.h>
#include <rubato/rubato.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zmq.h>

#include "io/stream/zmq/stream_message.h"
#include "io/stream/zmq/zmq_publisher.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/port_pair.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 2000, WAIT_S = 20 };

static char *directory, *temporary, *rest, *uri;
static unsigned port;
static RubatoEngine *engine;

static void set_up(void)
{
    directory = g_build_filename(temporary, "versions", NULL);
    port = find_port_pair();
    rest = g_strdup_printf("tcp://127.0.0.1:%u", port);
    uri = g_strconcat("zmq:", rest, NULL);
    engine = engine_with_servers(1);
    create_table(engine, &(RubatoTableSpec){ .name = "n",
                                             .dtype = RUBATO_I64,
                                             .width = 64, /* versions of several pieces */
                                             .n_keys = N_KEYS });
}

static void tear_down(void)
{
    rubato_engine_free(engine);
    remove_tree(directory);
    g_free(directory);
    g_free(rest);
    g_free(uri);
}

/* ---- versions: all values are the version's number ---- */

static void write_version(uint32_t full_every, uint32_t keep)
{
    const RubatoSnapshotSpec spec = { .directory = directory,
                                      .full_every = full_every,
                                      .keep = keep };
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_KEYS);
    g_autofree int64_t *ones = g_new(int64_t, N_KEYS * 64);

    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i;
    for (size_t i = 0; i < (size_t)N_KEYS * 64; i++)
        ones[i] = 1;
    ck_assert(rubato_engine_add(engine, "n", keys, N_KEYS, ones, NULL));
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
}

static RubatoStreamWriter *publish(void)
{
    g_autoptr(GError) error = NULL;
    RubatoStreamWriter *const writer = zmq_publisher_open(rest, directory, &error);

    ck_assert_msg(writer != NULL, "%s", error != NULL ? error->message : "");
    return writer;
}

/* Writes one more, and tells it. */
static void go_on(RubatoStreamWriter *writer, uint32_t full_every, uint32_t keep)
{
    write_version(full_every, keep);
    zmq_publisher_tell(writer, 0);
}

static RubatoFollower *follow(void)
{
    g_autoptr(GError) error = NULL;
    RubatoFollower *const follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, &error);

    ck_assert_msg(follower != NULL, "%s", error != NULL ? error->message : "");
    return follower;
}

static void check_rows(RubatoFollower *follower, int64_t value)
{
    const RubatoKey keys[] = { 0, N_KEYS - 1 };
    int64_t values[2 * 64];

    ck_assert(rubato_follower_get(follower, "n", keys, 2, values, NULL, NULL, NULL));
    for (size_t i = 0; i < 2 * 64; i++)
        ck_assert_int_eq(values[i], value);
}

/* Advances until it has that version; each one on the way is whole. Returns how many were read
 * anew. */
static int advance_to(RubatoFollower *follower, uint64_t version)
{
    RubatoFollowed followed;
    int n_anew = 0;

    while (rubato_follower_version(follower, NULL) != version) {
        g_autoptr(GError) error = NULL;
        const bool ok = rubato_follower_advance(follower, WAIT_S, &followed, &error);

        ck_assert_msg(ok, "%s", error != NULL ? error->message : "");
        ck_assert_int_ne(followed, RUBATO_FOLLOWED_NOTHING);
        check_rows(follower, (int64_t)rubato_follower_version(follower, NULL));
        n_anew += followed == RUBATO_FOLLOWED_ANEW;
    }
    return n_anew;
}

/* Waits until the follower says why nothing comes. */
static void expect_fault(RubatoFollower *follower, RubatoError code, const char *text)
{
    for (int i = 0; i < WAIT_S * 20; i++) {
        RubatoFollowed followed;
        GError *error = NULL;

        if (rubato_follower_advance(follower, .05, &followed, &error))
            continue;
        check_error(&error, code, text, NULL);
        return;
    }
    ck_abort_msg("nothing is told");
}

/* ---- the cases ---- */

START_TEST(follower_gets_each_version_once_and_in_order)
{
    g_autoptr(RubatoFollower) follower = follow(); /* before anybody publishes */
    RubatoStreamWriter *writer;

    write_version(4, 0);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 1), 1);
    for (uint64_t version = 2; version <= 6; version++) {
        go_on(writer, 4, 0);
        ck_assert_int_eq(advance_to(follower, version), 0);
    }
    ck_assert(rubato_follower_go_to(follower, 3, NULL));
    check_rows(follower, 3);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(late_joiner_gets_the_newest_and_what_it_builds_on)
{
    RubatoStreamWriter *writer;

    for (int i = 0; i < 6; i++)
        write_version(4, 0);
    writer = publish();
    g_autoptr(RubatoFollower) follower = follow();
    ck_assert_int_eq(advance_to(follower, 6), 1);
    ck_assert(!rubato_follower_go_to(follower, 4, NULL)); /* it builds on 5, which has all rows */
    zmq_publisher_close(writer);
}
END_TEST

/* Versions come and go while it does nothing: it neither holds up who writes them, nor is lost. */
START_TEST(slow_reader_goes_on_with_the_newest)
{
    g_autoptr(RubatoFollower) follower = follow();
    RubatoStreamWriter *writer;

    write_version(4, 3);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 1), 1);
    for (uint64_t version = 2; version <= 30; version++)
        go_on(writer, 4, 3);
    ck_assert_int_ge(advance_to(follower, 30), 1);
    go_on(writer, 4, 3);
    ck_assert_int_eq(advance_to(follower, 31), 0);
    zmq_publisher_close(writer);
}
END_TEST

/* Meanwhile versions come and go. */
START_TEST(publisher_that_comes_back_goes_on)
{
    g_autoptr(RubatoFollower) follower = follow();
    RubatoStreamWriter *writer;

    write_version(4, 0);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 1), 1);
    zmq_publisher_close(writer);
    write_version(4, 0);
    write_version(4, 0);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 3), 0);
    zmq_publisher_close(writer);
    for (int i = 0; i < 4; i++)
        write_version(2, 1); /* 4 goes on with the others; 5 and 7 have all rows */
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 7), 1);
    go_on(writer, 2, 1);
    ck_assert_int_eq(advance_to(follower, 8), 0);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(another_stream_begins_anew)
{
    g_autoptr(RubatoFollower) follower = follow();
    RubatoStreamWriter *writer;

    write_version(4, 0);
    write_version(4, 0);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 2), 1);
    zmq_publisher_close(writer);
    remove_tree(directory);
    rubato_engine_free(engine);
    engine = engine_with_servers(1);
    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .width = 64, .n_keys = N_KEYS });
    write_version(4, 0);
    writer = publish();
    ck_assert_int_eq(advance_to(follower, 1), 1);
    zmq_publisher_close(writer);
}
END_TEST

static void make_folder_whole(rlim_t most)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = most;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The disk of the reader. It says so, and goes on when there is room. */
START_TEST(full_disk_is_told_and_asked_again)
{
    RubatoStreamWriter *writer;

    signal(SIGXFSZ, SIG_IGN);
    write_version(4, 0);
    make_folder_whole(100000);
    writer = publish();
    g_autoptr(RubatoFollower) follower = follow();
    expect_fault(follower, RUBATO_ERROR_IO, "cannot be written");
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 0);
    make_folder_whole(RLIM_INFINITY);
    while (rubato_follower_version(follower, NULL) == 0)
        (void)rubato_follower_advance(follower, WAIT_S, &(RubatoFollowed){ 0 }, NULL);
    check_rows(follower, 1);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(silence_is_told)
{
    g_autoptr(RubatoFollower) follower = follow();

    expect_fault(follower, RUBATO_ERROR_NETWORK, "nothing was heard for 5 s");
}
END_TEST

static size_t count_readers_folders(void)
{
    GDir *const dir = g_dir_open(temporary, 0, NULL);
    size_t n = 0;

    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        n += g_str_has_prefix(name, "rubato-stream-reader-") ? 1 : 0;
    g_dir_close(dir);
    return n;
}

START_TEST(what_a_killed_reader_left_is_removed)
{
    g_autofree char *left = g_build_filename(temporary, "rubato-stream-reader-AAAAAA", NULL);
    g_autofree char *lock = g_build_filename(left, ".reader", NULL);
    g_autofree char *version = g_build_filename(left, "snapshot-000001", NULL);
    RubatoFollower *follower;

    ck_assert_int_eq(g_mkdir(left, 0700), 0);
    ck_assert_int_eq(g_mkdir(version, 0700), 0);
    ck_assert(g_file_set_contents(lock, "", 0, NULL));
    follower = follow();
    ck_assert_uint_eq(count_readers_folders(), 1);
    ck_assert(!g_file_test(left, G_FILE_TEST_EXISTS));
    rubato_follower_free(follower);
    ck_assert_uint_eq(count_readers_folders(), 0);
}
END_TEST

/* ---- malice ---- */

static void *open_socket(void *context, int type, unsigned number, bool binds)
{
    void *const socket = zmq_socket(context, type);
    g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%u", number);
    const int no_linger = 0;

    zmq_setsockopt(socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
    ck_assert_int_eq(binds ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint), 0);
    return socket;
}

static void send_message(void *socket, const StreamMessage *message, int flags)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);

    stream_message_write(&bytes, message);
    ck_assert_int_ge(zmq_send(socket, bytes.bytes, bytes.n, flags), 0);
}

/* A machine that stands still for some seconds loses the connection, whose ends hear nothing, and
 * the question with it: then it is asked again, as readers do. */
static StreamMessageKind ask(void *socket, const StreamMessage *question, zmq_msg_t *part)
{
    static uint64_t last_id;
    zmq_pollitem_t item = { .socket = socket, .events = ZMQ_POLLIN };
    StreamMessage asked = *question, answer = { .id = 0 };

    asked.id = ++last_id;
    zmq_msg_init(part);
    send_message(socket, &asked, 0);
    while (answer.id != asked.id) { /* of those before some may have come late */
        while (zmq_poll(&item, 1, 5000) == 0)
            send_message(socket, &asked, 0);
        ck_assert_int_ge(zmq_msg_recv(part, socket, 0), 0);
        ck_assert(stream_message_read(zmq_msg_data(part), zmq_msg_size(part), &answer));
    }
    return answer.kind;
}

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

    write_version(4, 0);
    writer = publish();
    stranger = open_socket(context, ZMQ_DEALER, port + 1, false);
    g_autoptr(RubatoFollower) follower = follow();
    ck_assert_int_ge(zmq_send(stranger, "", 0, 0), 0);
    ck_assert_int_ge(zmq_send(stranger, "nonsense", 8, 0), 0);
    send_message(stranger, &(StreamMessage){ .kind = STREAM_MESSAGE_LIST }, 0);
    send_message(stranger, &(StreamMessage){ .kind = STREAM_MESSAGE_ASK_LIST }, ZMQ_SNDMORE);
    ck_assert_int_ge(zmq_send(stranger, "more", 4, 0), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(questions); i++) {
        zmq_msg_t part;

        ck_assert_int_eq(ask(stranger, &questions[i].question, &part), questions[i].kind);
        zmq_msg_close(&part);
    }
    ck_assert_int_eq(advance_to(follower, 1), 1);
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

    ck_assert_int_eq(ask(socket, &question, &part), STREAM_MESSAGE_LIST);
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

    write_version(1, 1);
    writer = publish();
    socket = open_socket(context, ZMQ_DEALER, port + 1, false);
    ask_list(socket, 0, &first);
    question.number = first.number;
    question.seed = first.seed;
    question.table = STREAM_MANIFEST;
    if (has_begun) {
        ck_assert_int_eq(ask(socket, &question, &part), STREAM_MESSAGE_BYTES);
        zmq_msg_close(&part);
    }
    go_on(writer, 1, 1);
    do /* it is told soon; then the first one is gone */
        ask_list(socket, 2, &later);
    while (later.number != 2);
    question.table = 0;
    ck_assert_int_eq(ask(socket, &question, &part),
                     has_begun ? STREAM_MESSAGE_BYTES : STREAM_MESSAGE_GONE);
    zmq_msg_close(&part);
    zmq_close(socket);
    zmq_ctx_term(context);
    zmq_publisher_close(writer);
}
END_TEST

/* ---- answers that stay away ---- */

/* Hands messages on between a reader at `port` and a publisher at another one. */
typedef struct {
    void *context, *news, *hears, *router, *dealer;
    unsigned char id[64]; /* the reader's */
    int n_id;
} Relay;

static void relay_open(Relay *relay, unsigned from)
{
    void *const context = zmq_ctx_new();

    *relay = (Relay){ .context = context,
                      .news = open_socket(context, ZMQ_XPUB, port, true),
                      .hears = open_socket(context, ZMQ_SUB, from, false),
                      .router = open_socket(context, ZMQ_ROUTER, port + 1, true),
                      .dealer = open_socket(context, ZMQ_DEALER, from + 1, false) };
    ck_assert_int_eq(zmq_setsockopt(relay->hears, ZMQ_SUBSCRIBE, "", 0), 0);
}

static void relay_close(Relay *relay)
{
    zmq_close(relay->news);
    zmq_close(relay->hears);
    zmq_close(relay->router);
    zmq_close(relay->dealer);
    zmq_ctx_term(relay->context);
}

/* Hands on what has come within 20 ms. Counts questions for a manifest, and answers with bytes, of
 * which one is lost. */
static void relay_pass(Relay *relay, int *n_manifests, int *n_answers, int lost)
{
    zmq_pollitem_t items[] = { { .socket = relay->hears, .events = ZMQ_POLLIN },
                               { .socket = relay->router, .events = ZMQ_POLLIN },
                               { .socket = relay->dealer, .events = ZMQ_POLLIN } };
    g_autofree unsigned char *bytes = g_malloc(STREAM_MOST_ANSWER);
    StreamMessage message;
    int n;

    (void)zmq_poll(items, G_N_ELEMENTS(items), 20);
    while ((n = zmq_recv(relay->hears, bytes, STREAM_MOST_ANSWER, ZMQ_DONTWAIT)) >= 0)
        ck_assert_int_ge(zmq_send(relay->news, bytes, (size_t)n, 0), 0);
    while ((n = zmq_recv(relay->router, relay->id, sizeof relay->id, ZMQ_DONTWAIT)) >= 0) {
        relay->n_id = n;
        n = zmq_recv(relay->router, bytes, STREAM_MOST_ANSWER, 0);
        ck_assert(stream_message_read(bytes, (size_t)n, &message));
        *n_manifests += message.kind == STREAM_MESSAGE_ASK_BYTES &&
                        message.table == STREAM_MANIFEST && message.offset == 0;
        ck_assert_int_ge(zmq_send(relay->dealer, bytes, (size_t)n, 0), 0);
    }
    while ((n = zmq_recv(relay->dealer, bytes, STREAM_MOST_ANSWER, ZMQ_DONTWAIT)) >= 0) {
        ck_assert(stream_message_read(bytes, (size_t)n, &message));
        if (message.kind == STREAM_MESSAGE_BYTES && ++*n_answers == lost)
            continue;
        ck_assert_int_ge(zmq_send(relay->router, relay->id, (size_t)relay->n_id, ZMQ_SNDMORE), 0);
        ck_assert_int_ge(zmq_send(relay->router, bytes, (size_t)n, 0), 0);
    }
}

/* What has come before is not fetched again. */
START_TEST(answer_that_stays_away_is_asked_for_again)
{
    const unsigned from = find_port_pair();
    g_autofree char *at = g_strdup_printf("tcp://127.0.0.1:%u", from);
    RubatoStreamWriter *const writer = zmq_publisher_open(at, directory, NULL);
    g_autoptr(RubatoFollower) follower = follow();
    int n_manifests = 0, n_answers = 0;
    RubatoFollowed followed = RUBATO_FOLLOWED_NOTHING;
    Relay relay;

    ck_assert_ptr_nonnull(writer);
    write_version(1, 1);
    relay_open(&relay, from);
    zmq_publisher_tell(writer, 0);
    while (followed == RUBATO_FOLLOWED_NOTHING) {
        relay_pass(&relay, &n_manifests, &n_answers, /* lost= */ 5);
        (void)rubato_follower_advance(follower, 0, &followed, NULL);
    }
    check_rows(follower, 1);
    ck_assert_int_gt(n_answers, 5);
    ck_assert_int_eq(n_manifests, 1);
    relay_close(&relay);
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
    void *const news = open_socket(context, ZMQ_XPUB, port, true);
    void *const router = open_socket(context, ZMQ_ROUTER, port + 1, true);
    g_autoptr(RubatoFollower) follower = follow();
    GError *error = NULL;

    do {
        zmq_pollitem_t items[] = { { .socket = router, .events = ZMQ_POLLIN } };
        unsigned char id[64], bytes[256];
        StreamMessage asked;
        RubatoFollowed followed;
        int n_id, n;

        send_message(news, &(StreamMessage){ .kind = STREAM_MESSAGE_NEWEST, .number = 5 }, 0);
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
    void *const news = open_socket(context, ZMQ_XPUB, port, true);
    void *const router = open_socket(context, ZMQ_ROUTER, port + 1, true);
    g_autofree void *zeros = g_malloc0(STREAM_MOST_BYTES);
    g_autoptr(RubatoFollower) follower = follow();
    unsigned char id[64], bytes[256];
    int n_id = -1;

    while (n_id < 0) {
        zmq_pollitem_t items[] = { { .socket = router, .events = ZMQ_POLLIN } };

        send_message(news, &(StreamMessage){ .kind = STREAM_MESSAGE_NEWEST, .number = 5 }, 0);
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
    expect_fault(follower, RUBATO_ERROR_NETWORK, "removed while it was fetched");
    zmq_close(news);
    zmq_close(router);
    zmq_ctx_term(context);
}
END_TEST

/* ---- secrets ---- */

static char *make_secret(const char *name, char digit)
{
    char *const path = g_build_filename(temporary, name, NULL);
    g_autofree char *digits = g_strnfill(64, digit);

    ck_assert(g_file_set_contents_full(path, digits, 64, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    return path;
}

/* docs/security.md: Streams over ZeroMQ. Who has another secret, or none, hears nothing. */
START_TEST(secret_has_to_be_the_same)
{
    g_autofree char *right = make_secret("right", 'a'), *wrong = make_secret("wrong", 'b');
    g_autofree char *plain = uri;
    g_autofree char *wrong_uri = g_strconcat(uri, "?secret=", wrong, NULL);
    g_autofree char *plain_rest = rest;
    RubatoStreamWriter *writer;

    uri = g_strconcat(plain, "?secret=", right, NULL);
    rest = g_strconcat(plain_rest, "?secret=", right, NULL);
    write_version(4, 0);
    writer = publish();
    g_autoptr(RubatoFollower) follower = follow();
    g_autoptr(RubatoFollower) without =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = plain }, NULL);
    g_autoptr(RubatoFollower) stranger =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = wrong_uri }, NULL);
    ck_assert_int_eq(advance_to(follower, 1), 1);
    go_on(writer, 4, 0);
    ck_assert_int_eq(advance_to(follower, 2), 0);
    expect_fault(stranger, RUBATO_ERROR_NETWORK, "has it the same secret?");
    expect_fault(without, RUBATO_ERROR_NETWORK, "has it the same secret?");
    ck_assert_uint_eq(rubato_follower_version(stranger, NULL), 0);
    ck_assert_uint_eq(rubato_follower_version(without, NULL), 0);
    zmq_publisher_close(writer);
}
END_TEST

static const struct {
    const char *uri;
    RubatoError code;
    const char *text;
} wrong[] = {
    { "zmq:", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:tcp://127.0.0.1", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:ipc://x", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:tcp://127.0.0.1:0", RUBATO_ERROR_INVALID, "its port" },
    { "zmq:tcp://127.0.0.1:65535", RUBATO_ERROR_INVALID, "its port" },
    { "zmq:tcp://127.0.0.1:7070?dir=x", RUBATO_ERROR_INVALID, "found \"dir=x\"" },
    { "zmq:tcp://127.0.0.1:7070?secret=", RUBATO_ERROR_INVALID, "found \"secret=\"" },
    { "zmq:tcp://10.1.2.3:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://*:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://127.0.0.1.example.org:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://10.1.2.3:7070?secret=/no/such", RUBATO_ERROR_IO, "/no/such" },
};

START_TEST(uris_that_make_no_sense_are_refused)
{
    GError *error = NULL;

    ck_assert_ptr_null(rubato_follower_new(&(RubatoFollowerSpec){ .uri = wrong[_i].uri }, &error));
    check_error(&error, wrong[_i].code, wrong[_i].text, NULL);
}
END_TEST

START_TEST(run_has_to_say_where_versions_lie)
{
    GError *error = NULL;

    ck_assert(rubato_stream_check("zmq:tcp://127.0.0.1:7070?directory=x%20y", NULL));
    ck_assert(!rubato_stream_check("zmq:tcp://127.0.0.1:7070", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "?directory=DIR", NULL);
    ck_assert(!rubato_stream_check("zmq:tcp://127.0.0.1:7070?directory=s3://b/p", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "s3://b/p", NULL);
}
END_TEST

/* ---- a task ---- */

static bool add_one(RubatoWorker *worker, void *user_data, GError **error)
{
    int64_t ones[64];
    const RubatoKey key = 7;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_I64, error);

    (void)user_data;
    for (size_t i = 0; i < 64; i++)
        ones[i] = 1;
    return table != NULL && rubato_kv_table_add(table, &key, 1, ones, error);
}

/* The engine does not end before its readers have the last version. */
START_TEST(last_version_of_a_task_reaches_its_follower)
{
    static const char *const tables[] = { "n", NULL };
    g_autofree char *to = g_strconcat(uri, "?directory=", directory, NULL);
    const RubatoTaskStream stream = { .uri = to };
    const RubatoTask task = {
        .name = "add", .run = add_one, .tables = tables, .workers_per_node = 1, .stream = &stream
    };
    const RubatoKey key = 7;
    int64_t values[64];
    RubatoFollowed followed;
    g_autoptr(RubatoFollower) follower = follow();

    run_task_ok(engine, &task);
    ck_assert(rubato_follower_advance(follower, WAIT_S, &followed, NULL));
    run_task_ok(engine, &task);
    run_task_ok(engine, &task);
    rubato_engine_free(g_steal_pointer(&engine));
    while (rubato_follower_version(follower, NULL) < 3) {
        ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
        ck_assert_int_ne(followed, RUBATO_FOLLOWED_NOTHING);
    }
    ck_assert(rubato_follower_get(follower, "n", &key, 1, values, NULL, NULL, NULL));
    ck_assert_int_eq(values[63], 3);
}
END_TEST

/* Readers keep their versions there. It is set before anybody asks GLib, which keeps the answer. */
static void make_temporary(void)
{
    const char *const usual = getenv("TMPDIR");

    temporary = g_strconcat(usual != NULL ? usual : "/tmp", "/rubato-zmq-XXXXXX", NULL);
    if (g_mkdtemp(temporary) == NULL || setenv("TMPDIR", temporary, 1) != 0)
        g_error("%s cannot be made", temporary);
}

int main(void)
{
    Suite *suite = suite_create("zmq_stream");
    TCase *cases = tcase_create("streams over ZeroMQ");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, follower_gets_each_version_once_and_in_order);
    tcase_add_test(cases, late_joiner_gets_the_newest_and_what_it_builds_on);
    tcase_add_test(cases, slow_reader_goes_on_with_the_newest);
    tcase_add_test(cases, publisher_that_comes_back_goes_on);
    tcase_add_test(cases, another_stream_begins_anew);
    tcase_add_test(cases, full_disk_is_told_and_asked_again);
    tcase_add_test(cases, silence_is_told);
    tcase_add_test(cases, what_a_killed_reader_left_is_removed);
    tcase_add_test(cases, strangers_get_nothing_that_is_no_version);
    tcase_add_loop_test(cases, version_that_is_being_fetched_stays, 0, 2);
    tcase_add_test(cases, fetching_for_long_is_no_silence);
    tcase_add_test(cases, answer_that_stays_away_is_asked_for_again);
    tcase_add_loop_test(cases, publisher_that_lies_is_not_believed, 0, N_LIES);
    tcase_add_test(cases, secret_has_to_be_the_same);
    tcase_add_loop_test(cases, uris_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(cases, run_has_to_say_where_versions_lie);
    tcase_add_test(cases, last_version_of_a_task_reaches_its_follower);
    suite_add_tcase(suite, cases);
    make_temporary();
    const int status = run_suite(suite);
    remove_tree(temporary);
    g_free(temporary);
    return status;
}
