/* Snapshots of clusters: each node writes its parts, and another number of nodes and servers reads
 * them. What goes wrong on one node is told on all, and leaves the last good snapshot. Workers go
 * on while nodes read what they need before the cut. */
#include <netinet/in.h>
#include <rubato/stream.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/store/s3/s3_client.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"
#include "tests/support/store/three_tables.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-snapshot-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static const ClusterShape three_nodes = { .n_nodes = 3,
                                          .nodes = { { 2, 1 }, { 1, 2 }, { 0, 1 } },
                                          .scheduler = 2 };
static const ClusterShape two_nodes = { .n_nodes = 2, .nodes = { { 1, 1 }, { 2, 1 } } };

typedef struct {
    ThreeShapes shapes;
    uint32_t wrong; /* the node on which something is wrong; else UINT32_MAX */
} Scene;

static bool is_first(const RubatoEngine *engine)
{
    return rubato_engine_node(engine) == CLUSTER_IDS[0];
}

static void run_all(const ClusterShape *shape, ClusterPlay play, const Scene *scene)
{
    ClusterRun *run = cluster_run_new(shape);

    cluster_start(run, play, scene);
    cluster_expect_success(run);
    cluster_run_free(run);
}

static bool write_one(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const RubatoSnapshotSpec spec = { .directory = directory, .packing = RUBATO_PACKING_ZSTD };
    uint64_t number = 0;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        (is_first(engine) && !three_tables_fill(engine, error)) ||
        !rubato_engine_barrier(engine, error) ||
        !rubato_engine_snapshot(engine, &spec, &number, error))
        return false;
    EXPECT(number == 1, "the number is %u", (unsigned)number);
    return true;
}

static bool read_one(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    uint64_t number = 0;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        !rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, &number,
                               error))
        return false;
    EXPECT(number == 1, "the number is %u", (unsigned)number);
    return !is_first(engine) || three_tables_check(engine, &scene->shapes, error);
}

START_TEST(snapshot_of_three_nodes_is_read_by_others)
{
    run_all(&three_nodes, write_one, &(Scene){ .shapes = { .parts = 7 } });
    run_all(&three_nodes, read_one, &(Scene){ .shapes = { .parts = 7 } });
    run_all(&two_nodes, read_one, &(Scene){ .shapes = { .parts = 0, .is_double = true } });
    g_free(cluster_play_alone(2, 1, read_one, &(Scene){ .shapes = { .parts = 4 } }));
}
END_TEST

/* One node names another directory: a place where nothing can be made, or another good one. */
static bool write_apart(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const bool is_wrong = rubato_engine_node(engine) == CLUSTER_IDS[scene->wrong];
    g_autofree char *elsewhere = g_strconcat(directory, "-elsewhere", NULL);
    const RubatoSnapshotSpec spec = { .directory = is_wrong ? elsewhere : directory };
    GError *found = NULL;

    if (!three_tables_create(engine, &scene->shapes, error))
        return false;
    EXPECT(!rubato_engine_snapshot(engine, &spec, NULL, &found), "nodes that disagree");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "-elsewhere", error) &&
           rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                  error);
}

START_TEST(nodes_that_name_two_directories_are_told_so)
{
    run_all(&two_nodes, write_apart, &(Scene){ .wrong = 1 });
}
END_TEST

/* The directory turns into a file between two snapshots. */
static bool write_nowhere(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    g_autofree char *place = g_build_filename(directory, "file", NULL);
    const RubatoSnapshotSpec good = { .directory = directory }, bad = { .directory = place };
    g_autofree uint64_t *numbers = NULL;
    GError *found = NULL;
    size_t n;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        !rubato_engine_snapshot(engine, &good, NULL, error))
        return false;
    if (is_first(engine) && !g_file_set_contents(place, "x", 1, error))
        return false;
    if (!rubato_engine_barrier(engine, error))
        return false;
    EXPECT(!rubato_engine_snapshot(engine, &bad, NULL, &found), "a file is no directory");
    if (!cluster_expect_error(&found, RUBATO_ERROR_IO, place, error) ||
        !rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    EXPECT(n == 1, "%zu snapshots", n);
    return rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                 error);
}

START_TEST(failure_on_a_node_is_told_on_all)
{
    run_all(&three_nodes, write_nowhere, &(Scene){ .wrong = UINT32_MAX });
}
END_TEST

static bool add_one(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    const float one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_F32, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, &key, 1, &one, error);
}

/* On the node with worker 0 the run ends when the last version is there. So that node holds the
 * lock; the scheduler's, which has no worker, knows nothing of that version. */
static bool stream_one(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "n", NULL };
    g_autofree char *uri = g_strconcat("file:", directory, NULL);
    g_autofree char *lock = g_build_filename(directory, ".writer", NULL);
    g_autofree char *self = g_strdup_printf("process %ld on ", (long)getpid());
    const RubatoTaskStream stream = { .uri = uri };
    const RubatoTask task = { .name = "add", .run = add_one, .tables = tables, .stream = &stream };
    g_autofree uint64_t *numbers = NULL;
    g_autofree char *holder = NULL;
    size_t n;

    (void)data;
    if (!rubato_engine_create_table(engine, &(RubatoTableSpec){ .name = "n", .n_keys = 4 },
                                    error) ||
        !rubato_engine_run(engine, &task, error))
        return false;
    if (is_first(engine))
        return true;
    if (!rubato_snapshot_list(directory, &numbers, &n, error) ||
        !g_file_get_contents(lock, &holder, NULL, error))
        return false;
    EXPECT(n == 1, "%zu versions", n);
    EXPECT(g_str_has_prefix(holder, self), "the lock is held by %s", holder);
    return true;
}

START_TEST(node_that_waits_for_the_last_version_holds_the_lock)
{
    run_all(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 0 }, { 1, 1 } } }, stream_one, NULL);
}
END_TEST

/* ---- a store that is silent while a snapshot is prepared ---- */

#define BUCKET "s3://bucket/prefix"

/* Node 2 has no worker. Worker 0, of node 0, asks for the snapshot. */
enum { N_SILENT = 3, N_ROWS = 60, N_MORE = 200 };

static const ClusterShape silent_nodes = { .n_nodes = N_SILENT,
                                           .nodes = { { 1, 2 }, { 1, 1 }, { 1, 0 } } };

/* What goes on meanwhile: a worker's snapshot, or one by a call of all nodes; node 2 is killed. */
static const struct {
    bool by_call, kills;
} silences[] = { { false, false }, { true, false }, { false, true }, { true, true } };

/* In a node: signals of the case say when its workers, two at most, go on, and when they end. */
static sem_t goes_on[2];
static atomic_int ends;

static void go_on(int number)
{
    if (number == SIGUSR2)
        atomic_store(&ends, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(goes_on); i++)
        (void)sem_post(&goes_on[i]);
}

static void say_failure(const GError *fault)
{
    cluster_say("no snapshot: %s", fault != NULL ? fault->message : "it is there");
}

/* Each time that it is told to go on it makes so many Adds, and says so. */
static bool add_on(RubatoWorker *worker, const RubatoSnapshotSpec *spec, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(GError) fault = NULL;
    int64_t ones[N_ROWS];

    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_ROWS; i++)
        ones[i] = 1;
    if (rank == 0 && spec != NULL) {
        (void)rubato_worker_snapshot(worker, spec, NULL, &fault);
        say_failure(fault);
    }
    for (unsigned round = 1;; round++) {
        while (sem_wait(&goes_on[rank % 2]) != 0)
            continue; /* a signal */
        if (atomic_load(&ends) != 0)
            return true;
        for (unsigned i = 0; i < N_MORE; i++)
            if (!rubato_kv_table_add_range(table, 0, N_ROWS, ones, error) ||
                !rubato_kv_table_clock(table, error))
                return false;
        cluster_say("worker %u went on %u", rank, round);
    }
}

static bool add_and_ask(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = BUCKET, .full_every = 5 };

    return add_on(worker, *(const bool *)user_data ? NULL : &spec, error);
}

static bool play_silence(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const names[] = { "rows", NULL };
    const RubatoSnapshotSpec spec = { .directory = BUCKET, .full_every = 5 };
    const RubatoTableSpec rows = {
        .name = "rows", .dtype = RUBATO_I64, .model = "asp", .n_keys = N_ROWS, .replicas = 1
    };
    bool by_call = *(const bool *)data;
    const RubatoTask task = { .name = "add",
                              .run = add_and_ask,
                              .user_data = &by_call,
                              .tables = names,
                              .on_loss = RUBATO_ON_LOSS_CONTINUE };
    g_autoptr(GError) fault = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(goes_on); i++)
        (void)sem_init(&goes_on[i], /* pshared= */ 0, 0);
    signal(SIGUSR1, go_on);
    signal(SIGUSR2, go_on);
    if (!rubato_engine_create_table(engine, &rows, error))
        return false;
    RubatoTaskRun *const run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    if (by_call) {
        (void)rubato_engine_snapshot(engine, &spec, NULL, &fault);
        say_failure(fault);
    }
    return rubato_task_run_wait(run, error);
}

/* A server of S3, a process of its own, which nodes ask by paths of their own. It has no snapshots,
 * and no access for whoever looks for requests. Node 1 gets no answer until the case says so. */
typedef struct {
    int listener;
    struct sockaddr_in address;
} SilentStore;

static void store_begin(SilentStore *store)
{
    socklen_t n = sizeof store->address;

    store->address =
        (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    store->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(store->listener >= 0 &&
              bind(store->listener, (struct sockaddr *)&store->address, n) == 0 &&
              listen(store->listener, 64) == 0 &&
              getsockname(store->listener, (struct sockaddr *)&store->address, &n) == 0);
    g_setenv("AWS_ACCESS_KEY_ID", "key", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "secret", TRUE);
    g_setenv("no_proxy", "127.0.0.1", TRUE);
    g_unsetenv("AWS_ENDPOINT_URL_S3");
}

/* A node that is started next asks by this path. */
static void store_name(const SilentStore *store, uint32_t node)
{
    g_autofree char *endpoint =
        g_strdup_printf("http://127.0.0.1:%u/node-%u", ntohs(store->address.sin_port), node);

    g_setenv("AWS_ENDPOINT_URL", endpoint, TRUE);
}

/* Whoever asked may be gone. */
static void answer(int asked, const char *status, const char *body)
{
    g_autofree char *text =
        g_strdup_printf("HTTP/1.1 %s\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n"
                        "Connection: close\r\n\r\n%s",
                        status, strlen(body), body);

    (void)!send(asked, text, strlen(text), MSG_NOSIGNAL);
    close(asked);
}

static void refuse(int asked)
{
    answer(asked, "403 Forbidden", "<Error><Code>AccessDenied</Code></Error>");
}

/* What is asked, up to the empty line. (transfer full) */
static char *read_request(int asked)
{
    GString *const text = g_string_new(NULL);
    char bytes[4096];
    ssize_t n = 1;

    while (n > 0 && strstr(text->str, "\r\n\r\n") == NULL) {
        n = read(asked, bytes, sizeof bytes);
        g_string_append_len(text, bytes, MAX(n, 0));
    }
    return g_string_free(text, FALSE);
}

/* Until it is killed. */
static int serve_store(const void *data)
{
    const SilentStore *const store = data;
    unsigned came = 0;
    int silent = -1;

    for (int asked; (asked = accept4(store->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        g_autofree char *text = read_request(asked);
        unsigned node = N_SILENT;

        if (strstr(text, "prefix%2Fsnapshot-") != NULL)
            (void)sscanf(text, "GET /node-%u/", &node);
        if (g_str_has_prefix(text, "answer")) {
            refuse(silent);
            close(asked);
        } else if (node == 1) {
            silent = asked;
        } else if (node < N_SILENT) {
            answer(asked, "200 OK",
                   "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        } else {
            refuse(asked);
        }
        came |= 1u << node;
        if ((came & 7u) == 7u)
            cluster_say("all have asked");
    }
    return EXIT_FAILURE;
}

static void have_answered(const SilentStore *store)
{
    static const char text[] = "answer\r\n\r\n";
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert(fd >= 0 &&
              connect(fd, (const struct sockaddr *)&store->address, sizeof store->address) == 0 &&
              write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void expect_progress(ClusterRun *run, unsigned number)
{
    for (uint32_t node = 0; node < 2; node++)
        cluster_signal(run, node, SIGUSR1);
    for (uint32_t node = 0; node < 2; node++) {
        g_autofree char *text = g_strdup_printf("worker %u went on %u", node + 1, number);

        cluster_wait_for(run, node, text);
    }
}

static void kill_last(ClusterRun *run)
{
    cluster_signal(run, 2, SIGKILL);
    cluster_expect_end(run, 2, -SIGKILL);
    for (uint32_t node = 0; node < 2; node++)
        cluster_wait_for(run, node, "by part map 2");
}

START_TEST(workers_go_on_while_the_store_is_silent_for_a_node)
{
    const bool kills = silences[_i].kills;
    const uint32_t n_left = kills ? N_SILENT - 1 : N_SILENT;
    ClusterRun *const run = cluster_run_new(&silent_nodes);
    SilentStore store;

    store_begin(&store);
    const uint32_t server = cluster_start_process(run, serve_store, &store);
    for (uint32_t node = 0; node < N_SILENT; node++) {
        store_name(&store, node);
        cluster_start_node(run, node, play_silence, &silences[_i].by_call);
    }
    cluster_wait_for(run, server, "all have asked");
    expect_progress(run, 1);
    if (kills) {
        kill_last(run);
        expect_progress(run, 2);
    }
    have_answered(&store);
    cluster_wait_for(run, 0, "no snapshot: ");
    for (uint32_t node = 0; node < n_left; node++)
        cluster_signal(run, node, SIGUSR2);
    for (uint32_t node = 0; node < n_left; node++)
        cluster_expect_end(run, node, 0);
    g_autofree char *fault = cluster_text_after(run, 0, "no snapshot: ");
    ck_assert_msg(strstr(fault, kills ? "lost" : "HTTP 403 AccessDenied") != NULL, "%s", fault);
    cluster_run_free(run);
    close(store.listener);
}
END_TEST

/* Whether this build can ask S3. */
static bool has_s3(void)
{
    g_autoptr(GError) error = NULL;

    g_setenv("AWS_ACCESS_KEY_ID", "key", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "secret", TRUE);
    g_autoptr(S3Client) client = s3_client_new(&error);
    if (client == NULL)
        printf("skipped: a silent store: %s\n", error->message);
    return client != NULL;
}

int main(void)
{
    Suite *suite = suite_create("snapshots of clusters");
    TCase *cases = cluster_add_case(suite, "snapshots");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, snapshot_of_three_nodes_is_read_by_others);
    tcase_add_test(cases, nodes_that_name_two_directories_are_told_so);
    tcase_add_test(cases, failure_on_a_node_is_told_on_all);
    tcase_add_test(cases, node_that_waits_for_the_last_version_holds_the_lock);
    if (has_s3())
        tcase_add_loop_test(cases, workers_go_on_while_the_store_is_silent_for_a_node, 0,
                            G_N_ELEMENTS(silences));
    return run_suite(suite);
}
