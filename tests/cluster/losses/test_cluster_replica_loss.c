/* A node that is a process is killed while workers of other nodes use its servers: their task goes
 * on with the replicas, and each Add of it counts once.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <netinet/in.h>
#include <poll.h>
#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <rubato/service.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/transport_end.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, SCHEDULER = 0, VICTIM = 2, N_KEYS = 500, MORE = 20 };

/* On the nodes that are not killed. */
enum { WORKERS_LEFT = 3 };

static const RubatoTableSpec specs[] = {
    { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .parts = 7 },
    { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .parts = 7 },
    { .name = "rows",
      .model = "ssp",
      .staleness = 2,
      .dtype = RUBATO_I64,
      .storage = "hash",
      .parts = 7 },
};

enum { N_REPLICAS = 1 };

static const struct {
    const char *over;
    const RubatoTableSpec *spec;
    int how;
    bool small; /* pieces and windows */
} losses[] = {
    { "shm", &specs[0], SIGKILL, false },
    { "tcp", &specs[1], SIGKILL, true },
    { "shm", &specs[2], SIGKILL, true },
    { "tcp", &specs[0], SIGSTOP, false },
};

static bool add_once(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = rubato_worker_rank(worker);
    const int64_t workers = rubato_worker_n_workers(worker);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "after", RUBATO_I64, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, &key, 1, &workers, error) &&
           rubato_worker_barrier(worker, error);
}

/* A table and a task after the loss: the nodes that live have them. */
static bool play_after(RubatoEngine *engine, const RubatoTableSpec *like, GError **error)
{
    const char *const tables[] = { "after", NULL };
    RubatoTableSpec spec = *like;
    int64_t rows[WORKERS_LEFT + 1];

    spec.name = "after";
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        cluster_run_task(engine, "once", add_once, NULL, tables, error) &&
        rubato_engine_get_range(engine, "after", 0, WORKERS_LEFT + 1, rows, error));
    for (int i = 0; i <= WORKERS_LEFT; i++)
        EXPECT(rows[i] == (i < WORKERS_LEFT ? WORKERS_LEFT : 0), "row %d is %" G_GINT64_FORMAT, i,
               rows[i]);
    return rubato_engine_barrier(engine, error) &&
           rubato_engine_drop_table(engine, like->name, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t victims[] = { VICTIM };
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    LossyRounds rounds = { engine,        &spec,        N_KEYS, victims, G_N_ELEMENTS(victims),
                           .calls = true, .lists = true };
    int64_t n;

    spec.replicas = N_REPLICAS;
    TRY(lossy_rounds_play(&rounds, &n, error));
    cluster_say("%" G_GINT64_FORMAT " rounds", n);
    return rubato_engine_barrier(engine, error) && play_after(engine, &spec, error);
}

START_TEST(a_task_goes_on_without_a_node_that_had_servers_alone)
{
    /* that a process has ended is known without a timeout */
    const uint32_t timeout_ms = losses[_i].how == SIGKILL ? 0 : cluster_short_timeout_ms();
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                         .nodes = { { 1, 2 }, { 1, 1 }, { 2, 0 } },
                                         .scheduler = SCHEDULER,
                                         .timeout_ms = timeout_ms,
                                         .over = losses[_i].over,
                                         .sizes = losses[_i].small ? small_sizes() : NULL });

    cluster_start(run, play, losses[_i].spec);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, VICTIM, losses[_i].how);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 2");
        cluster_expect_text(run, i, " rounds");
    }
    cluster_run_free(run);
}
END_TEST

/* ---- rows that Gets create, and rows that are evicted ---- */

/* Each worker adds 1 once to keys that it alone uses, and asks for others. What is evicted is not
 * added to again: so a row is 1 if it is there, and rows that are there or were evicted are as many
 * as were added to. */
enum { OWN_KEYS = 100, ASKED_KEYS = 20, FULL_AFTER = 90, WIDE = 64 };

static const RubatoTableSpec of_kinds[] = {
    { .name = "bounded",
      .model = "asp",
      .dtype = RUBATO_I64,
      .storage = "hash",
      .width = WIDE,
      .max_bytes = 5 << 20,
      .parts = 4,
      .replicas = N_REPLICAS },
    { .name = "created",
      .model = "ssp",
      .staleness = 1,
      .dtype = RUBATO_I64,
      .storage = "hash",
      .create_on_get = true,
      .init_value = 3,
      .parts = 7,
      .replicas = N_REPLICAS },
    { .name = "rounds",
      .model = "asp",
      .dtype = RUBATO_I64,
      .n_keys = WORKERS_LEFT,
      .replicas = N_REPLICAS },
    { .name = "totals", .dtype = RUBATO_I64, .n_keys = 1, .width = 3, .replicas = N_REPLICAS },
};

static RubatoKey first_key_of(uint64_t rank, uint64_t round, uint64_t n)
{
    return 1 + (rank << 32) + round * n;
}

static bool use_kinds(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoEngine *const engine = user_data;
    const RubatoKey rank = rubato_worker_rank(worker);
    int64_t ones[OWN_KEYS * WIDE], rows[ASKED_KEYS], n_rounds = 0;
    g_autoptr(RubatoKVTable) bounded =
        rubato_worker_open_kv_table(worker, "bounded", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) created =
        bounded == NULL ? NULL : rubato_worker_open_kv_table(worker, "created", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) rounds =
        created == NULL ? NULL : rubato_worker_open_kv_table(worker, "rounds", RUBATO_I64, error);

    TRY(rounds != NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(ones); i++)
        ones[i] = 1;
    for (int more = 0; more < MORE; more += cluster_is_lost(engine, VICTIM), n_rounds++) {
        const RubatoKey own = first_key_of(rank, (uint64_t)n_rounds, OWN_KEYS);
        const RubatoKey asked = first_key_of(rank, (uint64_t)n_rounds, ASKED_KEYS);

        TRY(rubato_kv_table_add_range(bounded, own, OWN_KEYS, ones, error) &&
            rubato_kv_table_get_range(created, asked, ASKED_KEYS, rows, error));
        for (size_t i = 0; i < ASKED_KEYS; i++)
            EXPECT(rows[i] == 3, "a new row is %" G_GINT64_FORMAT, rows[i]);
        TRY(rubato_kv_table_clock(bounded, error) && rubato_kv_table_clock(created, error));
        if (n_rounds == FULL_AFTER)
            cluster_say("busy");
    }
    return rubato_kv_table_add(rounds, &rank, 1, &n_rounds, error);
}

/* Whether each row that is there is 1, so that its Add has counted once. */
static bool check_bounded(RubatoEngine *engine, const int64_t *n_rounds, GError **error)
{
    int64_t rows[OWN_KEYS * WIDE];

    for (uint64_t rank = 0; rank < WORKERS_LEFT; rank++)
        for (int64_t round = 0; round < n_rounds[rank]; round++) {
            const RubatoKey first = first_key_of(rank, (uint64_t)round, OWN_KEYS);

            TRY(rubato_engine_get_range(engine, "bounded", first, OWN_KEYS, rows, error));
            for (size_t i = 0; i < G_N_ELEMENTS(rows); i++)
                EXPECT(rows[i] == rows[i - i % WIDE] && (rows[i] == 0 || rows[i] == 1),
                       "a row is %" G_GINT64_FORMAT, rows[i]);
        }
    return true;
}

static bool play_kinds(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "bounded", "created", "rounds", NULL };
    const RubatoKey key = 0;
    int64_t n_rounds[WORKERS_LEFT], n = 0, totals[3];
    RubatoTableStats bounded, created;

    (void)data;
    for (size_t i = 0; i < G_N_ELEMENTS(of_kinds); i++)
        TRY(rubato_engine_create_table(engine, &of_kinds[i], error));
    TRY(cluster_run_task(engine, "kinds", use_kinds, engine, tables, error) &&
        rubato_engine_get_range(engine, "rounds", 0, WORKERS_LEFT, n_rounds, error) &&
        rubato_engine_table_stats(engine, "bounded", &bounded, error) &&
        rubato_engine_table_stats(engine, "created", &created, error));
    for (size_t i = 0; i < WORKERS_LEFT; i++)
        n += n_rounds[i];
    const int64_t here[] = { (int64_t)bounded.n_rows, (int64_t)bounded.n_evicted,
                             (int64_t)created.n_rows };
    TRY(rubato_engine_add(engine, "totals", &key, 1, here, error) &&
        rubato_engine_barrier(engine, error) &&
        rubato_engine_get(engine, "totals", &key, 1, totals, error));
    EXPECT(totals[1] > 0, "nothing was evicted");
    EXPECT(totals[0] + totals[1] == n * OWN_KEYS,
           "%" G_GINT64_FORMAT " rows and %" G_GINT64_FORMAT " evicted; %" G_GINT64_FORMAT
           " keys were added to",
           totals[0], totals[1], n * OWN_KEYS);
    EXPECT(totals[2] == n * ASKED_KEYS,
           "%" G_GINT64_FORMAT " rows, and %" G_GINT64_FORMAT " were asked for", totals[2],
           n * ASKED_KEYS);
    return check_bounded(engine, n_rounds, error) && rubato_engine_barrier(engine, error);
}

/* The victim is killed while workers of the others are busy; these end well. */
static void outlive_a_node(const char *over, ClusterPlay plays)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 1, 2 }, { 1, 1 }, { 2, 0 } },
                                                       .scheduler = SCHEDULER,
                                                       .over = over });

    cluster_start(run, plays, NULL);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 2");
    }
    cluster_run_free(run);
}

START_TEST(what_gets_create_and_adds_evict_outlives_a_node)
{
    outlive_a_node(_i == 0 ? "shm" : "tcp", play_kinds);
}
END_TEST

/* ---- announced keys ---- */

/* In each iteration a worker reads one of these keys and adds 1 to it. */
enum { SHARED = 16, STALENESS = 1, SPECULATION = 4 };

static const RubatoTableSpec told = { .name = "rows",
                                      .model = "sparse_ssp",
                                      .staleness = STALENESS,
                                      .speculation = SPECULATION,
                                      .dtype = RUBATO_I64,
                                      .n_keys = SHARED,
                                      .parts = 7,
                                      .replicas = N_REPLICAS };
static const RubatoTableSpec lengths = { .name = "lengths",
                                         .model = "asp",
                                         .dtype = RUBATO_I64,
                                         .n_keys = WORKERS_LEFT,
                                         .replicas = N_REPLICAS };

static RubatoKey key_of(uint32_t rank, uint64_t iteration)
{
    return (iteration * (2 * rank + 1) + 5 * rank) % SHARED;
}

typedef struct {
    uint64_t clock;
    RubatoKey key;
    int64_t row;
} Seen;

/* Of a worker of this node. */
typedef struct {
    RubatoEngine *engine;
    uint32_t rank;
    RubatoKey key;
    uint32_t more; /* iterations that began after the loss */
    GArray *seen;
} TellingWorker;

static bool next_key(uint64_t iteration, RubatoIteration *next, void *user_data)
{
    TellingWorker *const self = user_data;

    if (self->more == MORE)
        return false;
    self->more += cluster_is_lost(self->engine, VICTIM);
    self->key = key_of(self->rank, iteration);
    *next = (RubatoIteration){ &self->key, 1 };
    return true;
}

typedef struct {
    RubatoEngine *engine;
    pthread_mutex_t lock; /* guards seen */
    GArray *seen;
} TellingJob;

static bool tell_keys(RubatoWorker *worker, void *user_data, GError **error)
{
    TellingJob *const job = user_data;
    const RubatoKey rank = rubato_worker_rank(worker);
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Seen));
    TellingWorker self = { .engine = job->engine, .rank = (uint32_t)rank };
    const int64_t one = 1;
    RubatoIteration next;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, told.name, RUBATO_I64, next_key, &self, error);
    g_autoptr(RubatoKVTable) ends =
        table == NULL ? NULL : rubato_worker_open_kv_table(worker, lengths.name, RUBATO_I64, error);

    TRY(ends != NULL);
    while (rubato_sparse_kv_client_table_next(table, &next)) {
        Seen it = { .clock = seen->len, .key = next.keys[0] };

        TRY(rubato_sparse_kv_client_table_get(table, &it.row, error) &&
            rubato_sparse_kv_client_table_add(table, &one, error));
        g_array_append_val(seen, it);
        if (seen->len == 10)
            cluster_say("busy");
    }
    pthread_mutex_lock(&job->lock);
    g_array_append_vals(job->seen, seen->data, seen->len);
    pthread_mutex_unlock(&job->lock);
    const int64_t n = seen->len;
    return rubato_kv_table_add(ends, &rank, 1, &n, error);
}

/* Adds to a key in iterations below this, of workers that have made so many. */
static int64_t count_adds(RubatoKey key, uint64_t below, const int64_t *n_made)
{
    int64_t n = 0;

    for (uint32_t rank = 0; rank < WORKERS_LEFT; rank++) {
        const uint64_t n_iterations = MIN(below, (uint64_t)n_made[rank]);

        n += (int64_t)(n_iterations / SHARED); /* of SHARED in a row, one is of the key */
        for (uint64_t i = n_iterations - n_iterations % SHARED; i < n_iterations; i++)
            n += key_of(rank, i) == key;
    }
    return n;
}

/* No Get is further behind than the model allows, and in the end each Add has counted once. */
static bool check_told(const TellingJob *job, GError **error)
{
    int64_t n_made[WORKERS_LEFT], rows[SHARED];

    TRY(rubato_engine_get_range(job->engine, lengths.name, 0, WORKERS_LEFT, n_made, error) &&
        rubato_engine_get_range(job->engine, told.name, 0, SHARED, rows, error));
    for (guint i = 0; i < job->seen->len; i++) {
        const Seen *const it = &g_array_index(job->seen, Seen, i);
        const uint64_t below = it->clock < STALENESS ? 0 : it->clock - STALENESS;
        const int64_t least = count_adds(it->key, below, n_made);

        EXPECT(it->row >= least,
               "key %" G_GUINT64_FORMAT " at clock %" G_GUINT64_FORMAT ": %" G_GINT64_FORMAT
               " Adds, and %" G_GINT64_FORMAT " were to be seen",
               it->key, it->clock, it->row, least);
    }
    for (RubatoKey key = 0; key < SHARED; key++)
        EXPECT(rows[key] == count_adds(key, UINT64_MAX, n_made),
               "key %" G_GUINT64_FORMAT " has %" G_GINT64_FORMAT " Adds", key, rows[key]);
    return true;
}

static bool play_told(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "rows", "lengths", NULL };
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Seen));
    TellingJob job = { .engine = engine, .lock = PTHREAD_MUTEX_INITIALIZER, .seen = seen };

    (void)data;
    return rubato_engine_create_table(engine, &told, error) &&
           rubato_engine_create_table(engine, &lengths, error) &&
           cluster_run_task(engine, "tell", tell_keys, &job, tables, error) &&
           check_told(&job, error) && rubato_engine_barrier(engine, error);
}

START_TEST(what_workers_announced_outlives_a_node)
{
    outlive_a_node(_i == 0 ? "shm" : "tcp", play_told);
}
END_TEST

/* A process of another run: it listens, and proves to everybody that it is not the one that was
 * wanted. The case ends it. */
static int be_another(const void *data)
{
    const TransportConfig config = { .n_nodes = 1, .timeout_ms = 3000, .incarnation = 1 };
    g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%u", *(const uint16_t *)data);
    TransportEnd end = transport_end_open(&transport_tcp, &config, endpoint);
    struct pollfd polled = { .fd = end.ops->poll_fd(end.transport), .events = POLLIN };
    Received received;

    cluster_say("another listens");
    while (!end.ops->receive(end.transport, &received))
        poll(&polled, 1, -1);
    return EXIT_FAILURE; /* nobody sends it a packet */
}

/* Reserves a port for the victim, and for nobody who does not name it; *fd keeps it. Returns a file
 * in which the victim has it. */
static const char *give_port(ClusterRun *run, uint16_t *port, int *fd)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    g_autofree char *plain = cluster_file_text(run);
    g_autofree char *any =
        g_strdup_printf("{ id = %u; host = \"127.0.0.1\"; port = 0;", CLUSTER_IDS[VICTIM]);
    socklen_t size = sizeof address;
    const int one = 1;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(*fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    g_autofree char *own =
        g_strdup_printf("{ id = %u; host = \"127.0.0.1\"; port = %u;", CLUSTER_IDS[VICTIM], *port);
    g_auto(GStrv) parts = g_strsplit(plain, any, 2);
    ck_assert_uint_eq(g_strv_length(parts), 2);
    g_autofree char *text = g_strjoinv(own, parts);
    return cluster_add_file(run, text);
}

/* The scheduler's node stands still until the address is another's. The timeout is so long that the
 * silence of the node that has ended says nothing before the case fails. */
START_TEST(an_ended_node_is_lost_at_once_also_if_another_process_has_its_address)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 1, 2 }, { 1, 1 }, { 2, 0 } },
                                                       .scheduler = SCHEDULER,
                                                       .timeout_ms = 1000000,
                                                       .over = "tcp" });
    uint16_t port;
    int fd;
    const char *const path = give_port(run, &port, &fd);

    for (uint32_t i = 0; i < N_NODES; i++)
        cluster_start_node_with(run, i, path, play, &specs[0]);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, SCHEDULER, SIGSTOP);
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_expect_end(run, VICTIM, -SIGKILL);
    cluster_wait_for(run, cluster_start_process(run, be_another, &port), "another listens");
    cluster_signal(run, SCHEDULER, SIGCONT);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "its process has ended; the run goes on, by part map 2");
    }
    close(fd);
    cluster_run_free(run);
}
END_TEST

/* ---- tables without replicas ---- */

/* Beside the table with replicas, in the same task. The servers of node 2 are 2 and 3. */
static const RubatoTableSpec plain[] = {
    { .name = "plain",
      .model = "ssp",
      .staleness = 1,
      .dtype = RUBATO_I64,
      .n_keys = 4,
      .parts = 2 },
    { .name = "plain",
      .model = "ssp",
      .staleness = 1,
      .dtype = RUBATO_I64,
      .n_keys = 4,
      .parts = 4 },
};

static bool work_on_both(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 0, 1, 2, 3 };
    const int64_t ones[] = { 1, 1, 1, 1 };
    RubatoEngine *const engine = user_data;
    int64_t rows[4];
    g_autoptr(RubatoKVTable) kept = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) other =
        kept == NULL ? NULL : rubato_worker_open_kv_table(worker, "plain", RUBATO_I64, error);

    TRY(other != NULL);
    for (int more = 0, rounds = 0; more < MORE; more += cluster_is_lost(engine, VICTIM), rounds++) {
        TRY(rubato_kv_table_get(kept, keys, 4, rows, error) &&
            rubato_kv_table_get(other, keys, 4, rows, error) &&
            rubato_kv_table_add(kept, keys, 4, ones, error) &&
            rubato_kv_table_add(other, keys, 4, ones, error) &&
            rubato_kv_table_clock(kept, error) && rubato_kv_table_clock(other, error));
        if (rounds == 5)
            cluster_say("busy");
    }
    return true;
}

static bool play_both(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", "plain", NULL };
    const RubatoTableSpec kept = {
        .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .n_keys = 4, .replicas = N_REPLICAS
    };
    int64_t rows[2][4];

    TRY(rubato_engine_create_table(engine, data, error) &&
        rubato_engine_create_table(engine, &kept, error) &&
        cluster_run_task(engine, "work", work_on_both, engine, tables, error) &&
        rubato_engine_get_range(engine, "rows", 0, 4, rows[0], error) &&
        rubato_engine_get_range(engine, "plain", 0, 4, rows[1], error));
    EXPECT(memcmp(rows[0], rows[1], sizeof rows[0]) == 0,
           "the tables differ: %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT, rows[0][0], rows[1][0]);
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_loss_ends_the_run_if_a_table_without_replicas_has_a_part_there)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = N_NODES, .nodes = { { 1, 2 }, { 1, 1 }, { 2, 0 } }, .scheduler = SCHEDULER });

    cluster_start(run, play_both, &plain[_i]);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, _i == 0 ? 0 : CLUSTER_FAILED);
        cluster_expect_text(run, i,
                            _i == 0 ? "the run goes on, by part map 2"
                                    : "no other node has part 2 of table plain");
    }
    cluster_run_free(run);
}
END_TEST

/* ---- calls of handlers ---- */

static bool is_victim; /* this process */

/* It never ends on the node that is killed. */
static bool run_stuck(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    if (is_victim) {
        cluster_say("stuck");
        for (;;)
            pause();
    }
    return true;
}

static const RubatoHandlerOps stuck = { .name = "stuck", .run = run_stuck };

/* Ragged rows, some of which are on each server. They have 0, 1 and so on values. */
static const RubatoTableSpec ragged = { .name = "ragged",
                                        .dtype = RUBATO_I64,
                                        .shape = RUBATO_SHAPE_RAGGED,
                                        .n_keys = N_NODES,
                                        .parts = N_NODES,
                                        .replicas = N_REPLICAS };

/* One that waits calls again by the next map. A ticket cannot, and says why. One that reads ragged
 * rows, behind it on the server, is answered by the next one. */
static bool call_stuck(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall call = { .table = "rows", .handler = "stuck" };
    const RubatoKey keys[N_NODES] = { 0, 1, 2 };
    uint32_t sizes[N_NODES];
    g_autoptr(GError) found = NULL;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "ragged", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    if (rubato_worker_rank(worker) != 0)
        return rubato_worker_call_handler(worker, &call, NULL, error);
    const RubatoTicket ticket = rubato_worker_call_handler_async(worker, &call, NULL, NULL, error);
    const RubatoTicket reading =
        rubato_ragged_table_lengths_async(table, keys, N_NODES, sizes, NULL, error);

    TRY(ticket != 0 && reading != 0 && rubato_worker_wait(worker, reading, error));
    for (uint32_t i = 0; i < N_NODES; i++)
        EXPECT(sizes[i] == i, "row %u has %u values", i, sizes[i]);
    EXPECT(!rubato_worker_wait(worker, ticket, &found), "the call has not failed");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST,
                                "was lost before it answered a call of a handler", error) &&
           rubato_worker_call_handler(worker, &call, NULL, error);
}

static bool play_handlers(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", "ragged", NULL };
    const RubatoKey keys[N_NODES] = { 0, 1, 2 };
    const uint32_t sizes[N_NODES] = { 0, 1, 2 };
    const int64_t values[3] = { 0 };
    RubatoTableSpec spec = specs[0];

    (void)data;
    is_victim = rubato_engine_node(engine) == CLUSTER_IDS[VICTIM];
    spec.replicas = N_REPLICAS;
    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_create_table(engine, &ragged, error) &&
           rubato_engine_assign_ragged(engine, "ragged", keys, N_NODES, sizes, values, error) &&
           rubato_engine_barrier(engine, error) &&
           cluster_run_task(engine, "call", call_stuck, NULL, tables, error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(a_call_of_a_handler_says_that_its_node_was_lost_or_is_made_again)
{
    ck_assert(rubato_register_handler(&stuck, NULL));
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 1, 1 }, { 1, 0 } }, .scheduler = SCHEDULER });

    cluster_start(run, play_handlers, NULL);
    cluster_wait_for(run, VICTIM, "stuck");
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 1, 0);
    cluster_run_free(run);
}
END_TEST

/* ---- the scheduler's node ---- */

/* The nodes have replicas of each other's parts, but nobody could say who is the primary. So none
 * serves on with the old map, also if the scheduler's node only stood still.
 * docs/liveness.md: A node that dies, with replicas. */
START_TEST(no_node_goes_on_without_the_scheduler)
{
    static const int how[] = { SIGKILL, SIGSTOP };
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 0, 0 }, { 1, 1 }, { 1, 1 } },
                                                       .scheduler = SCHEDULER,
                                                       .timeout_ms = cluster_short_timeout_ms() });

    cluster_start(run, play, &specs[_i]);
    for (uint32_t i = 1; i < N_NODES; i++)
        cluster_wait_for(run, i, "busy");
    cluster_signal(run, SCHEDULER, how[_i]);
    for (uint32_t i = 1; i < N_NODES; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        /* by its silence, or by what it does not acknowledge */
        cluster_expect_text(run, i, ", where the scheduler runs, was lost: ");
        cluster_expect_no_text(run, i, "the run goes on");
    }
    if (how[_i] == SIGSTOP) {
        cluster_signal(run, SCHEDULER, SIGCONT);
        cluster_expect_end(run, SCHEDULER, CLUSTER_FAILED);
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replica loss");
    TCase *loss = cluster_add_case(suite, "loss");

    tcase_add_loop_test(loss, a_task_goes_on_without_a_node_that_had_servers_alone, 0,
                        G_N_ELEMENTS(losses));
    tcase_add_loop_test(loss, what_workers_announced_outlives_a_node, 0, 2);
    tcase_add_loop_test(loss, what_gets_create_and_adds_evict_outlives_a_node, 0, 2);
    tcase_add_loop_test(loss, a_loss_ends_the_run_if_a_table_without_replicas_has_a_part_there, 0,
                        G_N_ELEMENTS(plain));
    tcase_add_test(loss, a_call_of_a_handler_says_that_its_node_was_lost_or_is_made_again);
    tcase_add_loop_test(loss, no_node_goes_on_without_the_scheduler, 0, 2);
    tcase_add_test(loss, an_ended_node_is_lost_at_once_also_if_another_process_has_its_address);
    lossy_rounds_register();
    return run_suite(suite);
}
