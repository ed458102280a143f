/* Nodes that are processes are killed, and others take their places, again and again, while workers
 * use the parts that they have. In the end each part has been on processes that have joined alone.
 * These take part in moves of parts and in snapshots, also while a task uses their tables.
 *
 * docs/replication.md: A process in the place of a lost node. */
#include <netinet/in.h>
#include <rubato/snapshot.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/launch/launcher_news.h"
#include "io/net/transport/tcp/host_address.h"
#include "models/registry.h"
#include "tests/support/cluster/counted_lists.h"
#include "tests/support/cluster/counted_rounds.h"
#include "tests/support/cluster/stranger.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

/* Node 0 has workers and no servers, the others one server each. Each part has one replica. So one
 * of the two has the part, and the other one its replica. */
enum { PARTS = 4, LATER_ROUNDS = 5 };

#define LATER "later \xff" /* a name need not be UTF-8 */
#define PLAIN "plain"      /* without replicas */

static const struct {
    const char *over;
    RubatoTableSpec spec;
} cases[] = {
    { "shm", { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = COUNTED_KEYS + 1 } },
    { "tcp", { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" } },
};

static char *directory; /* of snapshots */

static bool take_snapshot(RubatoWorker *worker, int64_t round, GError **error)
{
    return round != 1 || rubato_worker_rank(worker) != 0 ||
           rubato_worker_snapshot(worker, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                  error);
}

/* Of ragged rows, too, if their model is given. */
static bool do_rounds(RubatoEngine *engine, const char *table, int64_t most,
                      const char *lists_model, GError **error)
{
    const CountedRounds rounds = { .table = table,
                                   .most = most,
                                   .lists_model = lists_model,
                                   .after_clock =
                                       strcmp(table, LATER) == 0 ? take_snapshot : NULL };

    return counted_rounds_play(engine, &rounds, error);
}

/* Parts without replicas, and moves of them between two such processes. One of the two may have
 * been lost without another in its place. */
static bool use_plain_table(RubatoEngine *engine, const RubatoTableSpec *like, GError **error)
{
    g_autoptr(GError) unmoved = NULL;
    RubatoTableSpec spec = *like;

    spec.name = PLAIN;
    spec.replicas = 0;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        do_rounds(engine, PLAIN, LATER_ROUNDS, NULL, error) &&
        rubato_engine_move_part(engine, PLAIN, 0, 1, error));
    if (!rubato_engine_move_part(engine, PLAIN, 1, 0, &unmoved))
        EXPECT(g_error_matches(unmoved, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST), "%s",
               unmoved->message);
    return counted_rounds_check(engine, PLAIN, error) &&
           do_rounds(engine, PLAIN, LATER_ROUNDS, NULL, error);
}

/* What a snapshot has of the tables is what was added, and so is what comes back of it. */
static bool save_and_restore(RubatoEngine *engine, const RubatoTableSpec *like, GError **error)
{
    RubatoTableSpec plain = *like, rows = *like;
    uint64_t number = 0;
    int64_t before, after;
    const RubatoKey key = COUNTED_KEYS;

    plain.name = PLAIN;
    plain.replicas = 0;
    rows.name = "rows";
    TRY(rubato_engine_get(engine, "rows", &key, 1, &before, error));
    TRY(rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, &number,
                               error));
    EXPECT(number == 3, "snapshot %" G_GUINT64_FORMAT, number); /* two by a worker */
    TRY(rubato_engine_drop_table(engine, PLAIN, error) &&
        rubato_engine_drop_table(engine, "rows", error) &&
        rubato_engine_drop_table(engine, COUNTED_LISTS, error) &&
        rubato_engine_create_table(engine, &plain, error) &&
        rubato_engine_create_table(engine, &rows, error) &&
        counted_lists_create(engine, &rows, error));
    TRY(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL, error));
    TRY(rubato_engine_get(engine, "rows", &key, 1, &after, error));
    EXPECT(before > 0 && before == after, "%" G_GINT64_FORMAT " rounds, %" G_GINT64_FORMAT, before,
           after);
    return counted_rounds_check(engine, PLAIN, error) &&
           counted_rounds_check(engine, "rows", error) && counted_lists_check(engine, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;

    signal(SIGUSR1, counted_rounds_stop);
    spec.parts = PARTS;
    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        counted_lists_create(engine, &spec, error) &&
        do_rounds(engine, "rows", 0, spec.model, error));
    spec.name = LATER; /* on processes that have joined alone */
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        do_rounds(engine, LATER, LATER_ROUNDS, NULL, error) &&
        counted_rounds_check(engine, "rows", error) && counted_lists_check(engine, error) &&
        do_rounds(engine, LATER, LATER_ROUNDS, NULL, error) &&
        rubato_engine_drop_table(engine, LATER, error));
    TRY(use_plain_table(engine, &spec, error) && save_and_restore(engine, &spec, error));
    return rubato_engine_barrier(engine, error);
}

static uint32_t start_joining_with(ClusterRun *run, uint32_t number, const char *path)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t process =
        cluster_start_other(run, CLUSTER_IDS[number], path, play, &cases[0].spec);
    g_unsetenv("RUBATO_JOIN");
    return process;
}

static uint32_t start_joining(ClusterRun *run, uint32_t number)
{
    return start_joining_with(run, number, run->path);
}

/* Losses before have been waited for, so only this one is told from here on. */
static void lose(ClusterRun *run, uint32_t process)
{
    g_string_truncate(run->processes[0].text, 0);
    cluster_signal(run, process, SIGKILL);
    cluster_wait_for(run, 0, "was lost: ");
}

static void expect_served(ClusterRun *run, uint32_t process)
{
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process,
                        "has served in the place of a lost process until the run ended");
}

START_TEST(parts_live_on_processes_that_have_joined)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 3, .nodes = { { 0, 2 }, { 1, 0 }, { 1, 0 } }, .over = cases[_i].over });
    uint32_t first, second, third;

    cluster_start(run, play, &cases[_i].spec);
    cluster_wait_for(run, 0, "busy");
    lose(run, 2);
    second = start_joining(run, 2);
    cluster_wait_for(run, 1, "server 0 has made 8 replicas of its parts on other nodes");
    lose(run, 1);
    first = start_joining(run, 1);
    cluster_wait_for(run, second, "server 1 has made 8 replicas of its parts on other nodes");
    lose(run, second); /* the same node again */
    third = start_joining(run, 2);
    cluster_wait_for(run, first, "server 0 has made 8 replicas of its parts on other nodes");
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_end(run, 0, 0);
    expect_served(run, first);
    expect_served(run, third);
    cluster_run_free(run);
}
END_TEST

/* It is killed once its maps are open, perhaps while parts are copied to it. */
START_TEST(process_may_be_killed_while_it_joins)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 3, .nodes = { { 0, 2 }, { 1, 0 }, { 1, 0 } }, .over = cases[_i].over });
    uint32_t joined;

    cluster_start(run, play, &cases[_i].spec);
    cluster_wait_for(run, 0, "busy");
    lose(run, 2);
    cluster_wait_for(run, 1, "was lost: ");
    g_string_truncate(run->processes[1].text, 0);
    joined = start_joining(run, 2);
    cluster_wait_for(run, joined, "takes the place of");
    lose(run, joined);
    cluster_wait_for(run, 1, "was lost: "); /* it has said all of the process that it will */
    g_string_truncate(run->processes[1].text, 0);
    joined = start_joining(run, 2);
    cluster_wait_for(run, 1, "server 0 has made 8 replicas of its parts on other nodes");
    lose(run, 1);
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_end(run, 0, 0);
    expect_served(run, joined);
    cluster_run_free(run);
}
END_TEST

/* It has its place, and does not come to make the tables. */
static void stop_at_tables(RubatoLogLevel level, const char *text, RubatoEngine *engine, void *data)
{
    (void)level;
    (void)engine;
    (void)data;
    if (strstr(text, "has taken the place of a lost process") == NULL)
        return;
    cluster_say("stands still");
    while (true)
        pause();
}

static int join_and_stop(const void *data)
{
    const RubatoEngineConfig config = { .cluster_file = data,
                                        .node = CLUSTER_IDS[2],
                                        .log = stop_at_tables };
    g_autoptr(GError) error = NULL;

    g_setenv("RUBATO_JOIN", "1", TRUE);
    return rubato_engine_new(&config, &error) == NULL ? 1 : 0;
}

static unsigned count_texts(const char *in, const char *text)
{
    unsigned n = 0;

    for (const char *at = in; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

/* Whoever starts processes again hears of it, as of the first. */
START_TEST(process_may_be_killed_before_it_has_the_tables)
{
    g_autofree char *news = g_strdup_printf("rubato lost %u ", CLUSTER_IDS[2]);
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3, .nodes = { { 0, 2 }, { 1, 0 }, { 1, 0 } } });
    uint32_t joined;

    g_setenv(LAUNCHER_NEWS_VARIABLE, "1", TRUE);
    cluster_start(run, play, &cases[0].spec);
    cluster_wait_for(run, 0, "busy");
    cluster_signal(run, 2, SIGKILL);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    joined = cluster_start_process(run, join_and_stop, run->path);
    cluster_wait_for(run, joined, "stands still");
    cluster_signal(run, joined, SIGKILL);
    cluster_wait_for(run, 0, "the run goes on, by part map 4");
    joined = start_joining(run, 2);
    cluster_wait_for(run, 0,
                     "takes the place of node 20 (127.0.0.1:0); the run goes on, by part "
                     "map 5");
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 1, 0);
    expect_served(run, joined);
    ck_assert_uint_eq(count_texts(run->processes[0].text->str, news), 2);
    cluster_run_free(run);
}
END_TEST

/* A process that asks to join and has ended before the others, who are told where it listens, try
 * to connect to it. */
static void join_and_be_gone(ClusterRun *run, uint32_t number)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* it does not listen */
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;
    TcpHand hand = stranger_connect_as_node(run->port);
    g_autofree char *text = cluster_file_text(run);
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    g_autofree char *registered = registry_describe();
    g_autofree char *host = host_identity();

    ck_assert(bind(fd, (const struct sockaddr *)&address, size) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    g_autofree char *endpoints =
        g_strdup_printf("tcp://127.0.0.1:%u,shm://%s/rubato-gone", ntohs(address.sin_port), host);
    const Control join = { .kind = CONTROL_JOIN,
                           .hello = { .node_id = CLUSTER_IDS[number],
                                      .number = number,
                                      .incarnation = 12345,
                                      .digest = digest,
                                      .endpoints = endpoints,
                                      .description = "somebody",
                                      .registered = registered } };
    GVariant *const body = control_greeting(&join);

    stranger_push_greeting(&hand, body);
    g_variant_unref(body);
    cluster_wait_for(run, 0, "nobody listens at its address any more, so its process has ended");
    close(hand.fd);
    close(fd);
}

/* Its loss is known at once: in this run a silence counts after a minute. */
START_TEST(process_may_end_before_others_are_connected_to_it)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 3, .nodes = { { 0, 2 }, { 1, 0 }, { 1, 0 } }, .over = cases[_i].over });
    uint32_t joined;

    cluster_start(run, play, &cases[_i].spec);
    cluster_wait_for(run, 0, "busy");
    lose(run, 2);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    g_string_truncate(run->processes[0].text, 0);
    const int64_t began_ms = cluster_now_ms();
    join_and_be_gone(run, 2);
    ck_assert_int_lt(cluster_now_ms() - began_ms, 10000 * cluster_slowness());
    joined = start_joining(run, 2);
    cluster_wait_for(run, 1, "server 0 has made 8 replicas of its parts on other nodes");
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_end(run, 0, 0);
    expect_served(run, joined);
    cluster_run_free(run);
}
END_TEST

START_TEST(process_is_refused_while_nothing_is_lost)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 0 } } });
    uint32_t process;

    cluster_start(run, play, &cases[0].spec);
    cluster_wait_for(run, 0, "busy");
    process = start_joining(run, 1);
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, "and not lost, so ");
    process = start_joining(run, 0);
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, "cannot join a run: the scheduler runs there");
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* It does not wait for a scheduler to come, as the nodes of a new run do. */
START_TEST(process_that_comes_after_the_end_says_so_soon)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 0 } }, .heartbeat_ms = 50, .timeout_ms = 250 });
    const uint32_t process = start_joining(run, 1); /* of a run that is not there */

    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, "there was no connection to its scheduler at 127.0.0.1:");
    cluster_expect_text(run, process, "has the run ended?");
    cluster_run_free(run);
}
END_TEST

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-join-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

int main(void)
{
    Suite *suite = suite_create("cluster join");
    TCase *joins = cluster_add_case(suite, "joins");

    tcase_add_checked_fixture(joins, set_up, tear_down);
    tcase_add_loop_test(joins, parts_live_on_processes_that_have_joined, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(joins, process_may_be_killed_while_it_joins, 0, G_N_ELEMENTS(cases));
    tcase_add_test(joins, process_may_be_killed_before_it_has_the_tables);
    tcase_add_loop_test(joins, process_may_end_before_others_are_connected_to_it, 0,
                        G_N_ELEMENTS(cases));
    tcase_add_test(joins, process_is_refused_while_nothing_is_lost);
    tcase_add_test(joins, process_that_comes_after_the_end_says_so_soon);
    return run_suite(suite);
}
