/* Streams over ZeroMQ: answers that stay away, connections that are lost, versions that are removed
 * and publishers that end while files are fetched. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <zmq.h>

#include "io/net/monotonic.h"
#include "io/store/snapshot_folder.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/port_pair.h"
#include "tests/support/store/small_snapshot.h"
#include "tests/support/stream/stream_fixture.h"

/* ---- a relay ---- */

/* Hands messages on between a reader at `stream.port` and a publisher at another one. */
typedef struct {
    void *context, *news, *hears, *router, *dealer;
    unsigned char id[64]; /* the reader's */
    int n_id;

    uint64_t has;    /* the newest version that the reader has, as it says */
    int n_manifests; /* questions for one */
    int n_answers;   /* with bytes */
    int lost_each;   /* one of so many of these is lost; 0: none is */
    int n_to_lose;
    bool cuts; /* the reader's connection is lost with it */
} Relay;

static void relay_open(Relay *relay, unsigned from)
{
    void *const context = zmq_ctx_new();

    *relay = (Relay){ .context = context,
                      .news = stream_open_socket(context, ZMQ_XPUB, stream.port, true),
                      .hears = stream_open_socket(context, ZMQ_SUB, from, false),
                      .router = stream_open_socket(context, ZMQ_ROUTER, stream.port + 1, true),
                      .dealer = stream_open_socket(context, ZMQ_DEALER, from + 1, false) };
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

/* ZeroMQ closes a socket a moment later; until then its port is taken. */
static void relay_cut(Relay *relay)
{
    g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%u", stream.port + 1);
    const int no_linger = 0;

    zmq_close(relay->router);
    relay->router = zmq_socket(relay->context, ZMQ_ROUTER);
    zmq_setsockopt(relay->router, ZMQ_LINGER, &no_linger, sizeof no_linger);
    while (zmq_bind(relay->router, endpoint) != 0) {
        ck_assert_int_eq(errno, EADDRINUSE);
        (void)zmq_poll(NULL, 0, 1);
    }
}

static void relay_answer(Relay *relay, const void *bytes, size_t n)
{
    StreamMessage message;

    ck_assert(stream_message_read(bytes, n, &message));
    if (message.kind == STREAM_MESSAGE_BYTES && relay->n_to_lose > 0 &&
        ++relay->n_answers % relay->lost_each == 0) {
        relay->n_to_lose--;
        if (relay->cuts)
            relay_cut(relay);
        return;
    }
    ck_assert_int_ge(zmq_send(relay->router, relay->id, (size_t)relay->n_id, ZMQ_SNDMORE), 0);
    ck_assert_int_ge(zmq_send(relay->router, bytes, n, 0), 0);
}

/* Hands on what has come within 20 ms. */
static void relay_pass(Relay *relay)
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
        if (message.kind == STREAM_MESSAGE_ASK_LIST)
            relay->has = message.number;
        relay->n_manifests += message.kind == STREAM_MESSAGE_ASK_BYTES &&
                              message.table == STREAM_MANIFEST && message.offset == 0;
        ck_assert_int_ge(zmq_send(relay->dealer, bytes, (size_t)n, 0), 0);
    }
    while ((n = zmq_recv(relay->dealer, bytes, STREAM_MOST_ANSWER, ZMQ_DONTWAIT)) >= 0)
        relay_answer(relay, bytes, (size_t)n);
}

/* … and until the publisher knows it, which would wait for the reader otherwise. */
static void relay_until(Relay *relay, RubatoFollower *follower, uint64_t version)
{
    while (rubato_follower_version(follower, NULL) != version || relay->has != version) {
        RubatoFollowed followed;

        relay_pass(relay);
        (void)rubato_follower_advance(follower, 0, &followed, NULL);
    }
    stream_check_rows(follower, (int64_t)version);
}

/* A publisher, to which the relay passes on. */
static RubatoStreamWriter *publish_behind(Relay *relay)
{
    const unsigned from = find_port_pair();
    g_autofree char *at = g_strdup_printf("tcp://127.0.0.1:%u", from);
    RubatoStreamWriter *const writer = zmq_publisher_open(at, stream.directory, NULL);

    ck_assert_ptr_nonnull(writer);
    relay_open(relay, from);
    return writer;
}

/* ---- the cases ---- */

/* What has come before is not fetched again. */
START_TEST(answer_that_stays_away_is_asked_for_again)
{
    Relay relay;
    RubatoStreamWriter *const writer = publish_behind(&relay);
    g_autoptr(RubatoFollower) follower = stream_follow();

    stream_write(1, 1);
    relay.lost_each = 5;
    relay.n_to_lose = 1;
    zmq_publisher_tell(writer, 0);
    relay_until(&relay, follower, 1);
    ck_assert_int_eq(relay.n_to_lose, 0);
    ck_assert_int_eq(relay.n_manifests, 1);
    relay_close(&relay);
    zmq_publisher_close(writer);
}
END_TEST

/* Who asks waits 3 s for an answer; but not where nothing can come any more. */
START_TEST(answer_that_is_lost_with_its_connection_is_asked_for_at_once)
{
    enum { N_LOSSES = 8, ANSWER_MS = 3000 };
    Relay relay;
    RubatoStreamWriter *const writer = publish_behind(&relay);
    g_autoptr(RubatoFollower) follower = stream_follow();

    stream_write(1, 1);
    relay.lost_each = 4;
    relay.n_to_lose = N_LOSSES;
    relay.cuts = true;
    zmq_publisher_tell(writer, 0);

    const int64_t began_ms = monotonic_ms();

    relay_until(&relay, follower, 1);
    ck_assert_int_eq(relay.n_to_lose, 0);
    ck_assert_int_eq(relay.n_manifests, 1);
    ck_assert_int_lt(monotonic_ms() - began_ms, N_LOSSES * ANSWER_MS);
    relay_close(&relay);
    zmq_publisher_close(writer);
}
END_TEST

static void allow_descriptors(rlim_t n)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_ge(limit.rlim_max, n);
    limit.rlim_cur = n;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* All of them, although the run has removed the version when the first ones have come. */
START_TEST(version_of_many_files_comes_as_a_whole)
{
    enum { N_FILES = 300 };
    g_autofree char *version = snapshot_folder_whole(stream.directory, 1);
    Relay relay;
    RubatoStreamWriter *writer;

    allow_descriptors(4 * N_FILES);
    ck_assert(rubato_engine_drop_table(stream.engine, "n", NULL));
    stream_create_table(N_FILES);
    stream_write(1, 1);
    writer = publish_behind(&relay);
    g_autoptr(RubatoFollower) follower = stream_follow();
    relay.lost_each = 20; /* of the manifest, or a file */
    relay.n_to_lose = 1;
    relay.cuts = true;
    while (relay.n_to_lose > 0)
        relay_pass(&relay);
    remove_tree(version);
    relay_until(&relay, follower, 1);
    ck_assert_int_eq(relay.n_manifests, 1);
    relay_close(&relay);
    zmq_publisher_close(writer);
}
END_TEST

/* ---- the end of a publisher ---- */

typedef struct {
    RubatoStreamWriter *writer;
    atomic_bool has_ended;
} Ending;

static void *end_publisher(void *data)
{
    Ending *const ending = data;

    zmq_publisher_close(ending->writer);
    atomic_store(&ending->has_ended, true);
    return NULL;
}

/* Whether the publisher answers; false: it has ended. */
static bool is_answered(void *socket, const StreamMessage *question, Ending *ending)
{
    zmq_pollitem_t item = { .socket = socket, .events = ZMQ_POLLIN };

    stream_send(socket, question, 0);
    while (zmq_poll(&item, 1, 50) == 0)
        if (atomic_load(&ending->has_ended))
            return false;
    ck_assert_int_gt(zmq_recv(socket, NULL, 0, 0), 0);
    return true;
}

/* A reader that is not heard of for 3 s is given up. This one is heard of, but asks for no list. */
START_TEST(publisher_that_ends_waits_for_who_fetches)
{
    enum { LAGGING_MS = 3000, EACH_MS = 300 };
    const StreamMessage list = { .kind = STREAM_MESSAGE_ASK_LIST };
    const StreamMessage has = { .kind = STREAM_MESSAGE_ASK_LIST, .number = 1 };
    const StreamMessage bytes = { .kind = STREAM_MESSAGE_ASK_BYTES, .number = 1, .n = 9 };
    void *const context = zmq_ctx_new();
    void *socket;
    pthread_t thread;
    Ending ending = { .has_ended = false };
    int64_t gap_ms = 0, longest_ms = 0;
    bool ok = true;

    stream_write(1, 1);
    ending.writer = stream_publish();
    socket = stream_open_socket(context, ZMQ_DEALER, stream.port + 1, false);
    ck_assert(is_answered(socket, &list, &ending));
    ck_assert_int_eq(pthread_create(&thread, NULL, end_publisher, &ending), 0);
    for (int64_t past_ms = 0; ok && past_ms < LAGGING_MS + 3 * EACH_MS; past_ms += gap_ms) {
        const int64_t began_ms = monotonic_ms();

        (void)zmq_poll(NULL, 0, EACH_MS);
        ok = is_answered(socket, &bytes, &ending);
        gap_ms = monotonic_ms() - began_ms;
        longest_ms = MAX(longest_ms, gap_ms);
    }
    ck_assert(ok || longest_ms >= LAGGING_MS); /* as where this machine stood still for so long */
    if (ok)
        (void)is_answered(socket, &has, &ending);
    pthread_join(thread, NULL);
    zmq_close(socket);
    zmq_ctx_term(context);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("zmq_losses");
    TCase *const cases = tcase_create("what is lost while files are fetched");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, stream_set_up, stream_tear_down);
    tcase_add_test(cases, answer_that_stays_away_is_asked_for_again);
    tcase_add_test(cases, answer_that_is_lost_with_its_connection_is_asked_for_at_once);
    tcase_add_test(cases, version_of_many_files_comes_as_a_whole);
    tcase_add_test(cases, publisher_that_ends_waits_for_who_fetches);
    suite_add_tcase(suite, cases);
    return stream_run_suite(suite);
}
