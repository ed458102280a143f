/* Handlers on several nodes, over shared memory and TCP, with usual and with small pieces and
 * windows: results are those of one node; arguments and results of many pieces; failures; handlers
 * that take long; nodes that have registered others. */
#include <errno.h>
#include <math.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/engine_private.h"
#include "io/net/handler_call.h"
#include "models/update/bad_gradients.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 300, N_PARTS = 5 };

static const struct {
    ClusterShape shape;
    const char *over;
    bool small;
} shapes[] = {
    { { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } }, "shm", false },
    { { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 1 } } }, "tcp", true },
    { { .n_nodes = 3, .nodes = { { 1, 1 }, { 1, 2 }, { 0, 1 } }, .scheduler = 2 }, "tcp", false },
    { { .n_nodes = 3, .nodes = { { 1, 1 }, { 2, 1 }, { 1, 1 } } }, "shm", true },
};

static ClusterRun *new_run(int i)
{
    ClusterShape shape = shapes[i].shape;

    shape.over = shapes[i].over;
    if (shapes[i].small)
        shape.sizes = small_sizes();
    return cluster_run_new(&shape);
}

/* ---- the handlers of this program ---- */

/* Its arguments backwards. */
static bool run_reverse(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                        GError **error)
{
    const size_t n = rubato_byte_reader_left(arguments);
    const unsigned char *bytes = rubato_read_bytes(arguments, n);

    g_autofree unsigned char *reversed = g_malloc(n);

    (void)part;
    (void)error;
    for (size_t i = 0; i < n; i++)
        reversed[i] = bytes[n - 1 - i];
    return rubato_write(result, reversed, n);
}

static bool run_fail(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    (void)arguments;
    (void)result;
    if (rubato_part_number(part) != 1)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it does not like this part");
    return false;
}

/* Takes as many milliseconds as its argument says. */
static bool run_sleep(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    (void)part;
    (void)result;
    (void)error;
    g_usleep(1000ul * rubato_read_u32(arguments));
    return true;
}

static bool run_die(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    raise(SIGKILL);
    return true;
}

static const RubatoHandlerOps own_handlers[] = {
    { .name = "die", .run = run_die },
    { .name = "reverse", .run = run_reverse },
    { .name = "fail", .run = run_fail },
    { .name = "sleep", .run = run_sleep },
};

static void register_all(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(own_handlers); i++)
        ck_assert(rubato_register_handler(&own_handlers[i], NULL));
}

/* ---- results are those of one node ---- */

enum { N_DTYPES = 4 };

static const char *const pair_names[] = { "a", "b" };

/* Numbers of which sums in double depend on their order. */
static void fill_wildly(RubatoDtype dtype, uint64_t seed, void *values)
{
    uint64_t state = seed;

    for (size_t i = 0; i < N_KEYS; i++) {
        const uint64_t bits = next_random(&state);
        const double wild = ldexp((double)(int64_t)bits, (int)random_below(&state, 100) - 50);

        if (dtype == RUBATO_F64)
            ((double *)values)[i] = wild;
        else if (dtype == RUBATO_F32)
            ((float *)values)[i] = (float)wild;
        else
            value_store(dtype, values, i, dtype == RUBATO_I32 ? (int32_t)bits : (int64_t)bits);
    }
}

/* Two tables of a dtype, in dense or hash storage. */
static bool make_pair(RubatoEngine *engine, RubatoDtype dtype, bool is_hashed, GError **error)
{
    RubatoKey keys[N_KEYS];
    int64_t values[N_KEYS];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = is_hashed ? rubato_mix64(i) : i;
    for (uint64_t i = 0; i < G_N_ELEMENTS(pair_names); i++) {
        const RubatoTableSpec spec = { .name = pair_names[i],
                                       .dtype = dtype,
                                       .n_keys = is_hashed ? 0 : N_KEYS,
                                       .parts = N_PARTS };

        fill_wildly(dtype, i, values);
        if (!rubato_engine_create_table(engine, &spec, error) ||
            !rubato_engine_set(engine, pair_names[i], keys, N_KEYS, values, error))
            return false;
    }
    return rubato_engine_barrier(engine, error);
}

static bool say_result(RubatoEngine *engine, const RubatoHandlerCall *call, const char *place,
                       GError **error)
{
    g_autoptr(GBytes) result = NULL;
    g_autofree char *digest = NULL;

    if (!rubato_engine_call_handler(engine, call, &result, error))
        return false;
    digest = g_compute_checksum_for_bytes(G_CHECKSUM_SHA256, result);
    cluster_say("result of %s on %s is %s", call->handler, place, digest);
    return true;
}

/* Every handler that reads. */
static bool say_pair(RubatoEngine *engine, bool is_hashed, const char *place, GError **error)
{
    const RubatoKey pair[] = { is_hashed ? rubato_mix64(1) : 1, is_hashed ? rubato_mix64(9) : 299 };
    const uint32_t top[] = { 4, 0, 1 };
    g_auto(RubatoByteWriter) steps = rubato_byte_writer_new(SIZE_MAX);

    rubato_write_f64(&steps, -1e6);
    rubato_write_f64(&steps, 1e9);
    rubato_write_u32(&steps, 7);
    const RubatoHandlerCall calls[] = {
        { .table = "a", .handler = "sum" },
        { .table = "a", .handler = "norm" },
        { .table = "a", .handler = "count" },
        { .table = "a", .handler = "dot", .arguments = "b", .n_argument_bytes = 1 },
        { .table = "b", .handler = "dot", .scope = RUBATO_SCOPE_KEYS, .keys = pair, .n_keys = 2 },
        { .table = "b", .handler = "top_k", .arguments = top, .n_argument_bytes = sizeof top },
        { .table = "b",
          .handler = "histogram",
          .arguments = steps.bytes,
          .n_argument_bytes = steps.n },
        { .table = "b", .handler = "norm", .scope = RUBATO_SCOPE_PART, .part = 3 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        g_autofree char *there = g_strdup_printf("%s, call %zu", place, i);

        if (!say_result(engine, &calls[i], there, error))
            return false;
    }
    return rubato_engine_barrier(engine, error);
}

/* One node scales; all see it. */
static bool say_scaled(RubatoEngine *engine, const char *place, GError **error)
{
    const double factor = -2.5;
    const bool scales =
        rubato_engine_n_nodes(engine) == 1 || rubato_engine_node(engine) == CLUSTER_IDS[0];
    const RubatoHandlerCall scale = {
        .table = "a", .handler = "scale", .arguments = &factor, .n_argument_bytes = sizeof factor
    };
    g_autofree char *there = g_strdup_printf("%s, scaled", place);

    if ((scales && !rubato_engine_call_handler(engine, &scale, NULL, error)) ||
        !rubato_engine_barrier(engine, error))
        return false;
    return say_result(engine, &(RubatoHandlerCall){ .table = "a", .handler = "sum" }, there,
                      error) &&
           rubato_engine_barrier(engine, error);
}

static bool say_results(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    for (uint32_t i = 0; i < 2 * N_DTYPES; i++) {
        const RubatoDtype dtype = (RubatoDtype)(i % N_DTYPES);
        const bool is_hashed = i >= N_DTYPES;
        g_autofree char *place =
            g_strdup_printf("%s, %s", rubato_dtype_name(dtype), is_hashed ? "hash" : "dense");

        if (!make_pair(engine, dtype, is_hashed, error) ||
            !say_pair(engine, is_hashed, place, error) ||
            ((dtype == RUBATO_F32 || dtype == RUBATO_F64) && !say_scaled(engine, place, error)) ||
            !rubato_engine_drop_table(engine, "a", error) ||
            !rubato_engine_drop_table(engine, "b", error))
            return false;
    }
    return rubato_engine_barrier(engine, error);
}

START_TEST(results_are_those_of_one_node)
{
    g_autofree char *alone = cluster_play_alone(1, 1, say_results, NULL);
    g_auto(GStrv) lines = g_strsplit(alone, "\n", -1);
    ClusterRun *run = new_run(_i);
    unsigned n_results = 0;

    cluster_start(run, say_results, NULL);
    cluster_expect_success(run);
    for (char **line = lines; *line != NULL; line++) {
        const char *const result = strstr(*line, "result of ");

        for (uint32_t node = 0; result != NULL && node < shapes[_i].shape.n_nodes; node++)
            cluster_expect_text(run, node, result);
        n_results += result != NULL;
    }
    ck_assert_uint_eq(n_results, 2 * N_DTYPES * 8 + 4);
    cluster_run_free(run);
}
END_TEST

/* ---- many pieces ---- */

/* More than a packet of any size carries, and not a multiple of one. */
static size_t bytes_of(int i)
{
    return shapes[i].small ? 30001 : (1 << 20) + 5;
}

static bool reverse_on(RubatoEngine *engine, RubatoWorker *worker, size_t n, GError **error)
{
    g_autofree unsigned char *bytes = g_malloc(n);
    g_autoptr(GBytes) result = NULL;
    uint64_t state = n;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)next_random(&state);
    const RubatoHandlerCall asked = {
        .table = "t", .handler = "reverse", .arguments = bytes, .n_argument_bytes = n
    };

    if (!(worker != NULL ? rubato_worker_call_handler(worker, &asked, &result, error)
                         : rubato_engine_call_handler(engine, &asked, &result, error)))
        return false;
    EXPECT(g_bytes_get_size(result) == N_PARTS * n, "%zu bytes", g_bytes_get_size(result));
    const unsigned char *at = g_bytes_get_data(result, NULL);

    for (size_t i = 0; i < n / 2; i++) { /* backwards */
        const unsigned char one = bytes[i];

        bytes[i] = bytes[n - 1 - i];
        bytes[n - 1 - i] = one;
    }
    for (size_t part = 0; part < N_PARTS; part++)
        EXPECT(n == 0 || memcmp(at + part * n, bytes, n) == 0, "the result of part %zu", part);
    return true;
}

static bool reverse_in_task(RubatoWorker *worker, void *user_data, GError **error)
{
    const size_t most = *(const size_t *)user_data;

    for (size_t n = most - 2; n <= most; n++)
        if (!reverse_on(NULL, worker, n, error))
            return false;
    return reverse_on(NULL, worker, 0, error) && reverse_on(NULL, worker, 1, error);
}

static bool reverse(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "t", .n_keys = N_KEYS, .parts = N_PARTS, .model = "ssp", .staleness = 1
    };
    const char *const tables[] = { "t", NULL };
    const size_t n = bytes_of(*(const int *)data);

    return rubato_engine_create_table(engine, &spec, error) && reverse_on(engine, NULL, n, error) &&
           cluster_run_task(engine, "reverse", reverse_in_task, &n, tables, error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(arguments_and_results_go_in_many_pieces)
{
    ClusterRun *run = new_run(_i);

    cluster_start(run, reverse, &_i);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a handler that fails ---- */

static bool fail_in_task(RubatoWorker *worker, void *user_data, GError **error)
{
    GError *found = NULL;

    (void)user_data;
    EXPECT(!rubato_worker_call_handler(
               worker, &(RubatoHandlerCall){ .table = "t", .handler = "fail" }, NULL, &found),
           "it fails");
    return cluster_expect_error(&found, RUBATO_ERROR_HANDLER,
                                "table t: handler fail failed on part 1 (node ", error) &&
           rubato_worker_call_handler(
               worker, &(RubatoHandlerCall){ .table = "t", .handler = "count" }, NULL, error);
}

static bool fail_everywhere(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS, .parts = N_PARTS };
    const char *const tables[] = { "t", NULL };
    GError *found = NULL;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    EXPECT(!rubato_engine_call_handler(
               engine, &(RubatoHandlerCall){ .table = "t", .handler = "fail" }, NULL, &found),
           "it fails");
    return cluster_expect_error(&found, RUBATO_ERROR_HANDLER, "it does not like this part",
                                error) &&
           cluster_run_task(engine, "fail", fail_in_task, NULL, tables, error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(failure_of_a_handler_reaches_its_caller_alone)
{
    ClusterRun *run = new_run(_i);

    cluster_start(run, fail_everywhere, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a handler that takes long ---- */

/* A handler takes longer than a node may be silent. A machine may hold up a process for five
 * seconds, and no node counts as lost. */
enum { PATIENCE_MS = 6000, TAKES_MS = PATIENCE_MS + 1500 };

static bool call_sleep(RubatoWorker *worker, uint32_t ms, GError **error)
{
    /* part 1 is on node 1 */
    return rubato_worker_call_handler(worker,
                                      &(RubatoHandlerCall){ .table = "t",
                                                            .handler = "sleep",
                                                            .arguments = &ms,
                                                            .n_argument_bytes = sizeof ms,
                                                            .scope = RUBATO_SCOPE_PART,
                                                            .part = 1 },
                                      NULL, error);
}

static bool sleep_in_task(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t *ms = user_data;

    return rubato_worker_rank(worker) != 0 || call_sleep(worker, *ms, error);
}

/* In memory that the case and its nodes share. */
typedef struct {
    uint32_t ms;
    sem_t call_waits;
} Release;

/* Under BSP the call of worker 1 waits for the clock of worker 0. The thread of its node that
 * receives that clock must not run it. */
static bool sleep_after_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    Release *release = user_data;
    const bool is_first = rubato_worker_rank(worker) == 0;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL)
        return false;
    while (is_first && sem_wait(&release->call_waits) != 0)
        EXPECT(errno == EINTR, "the semaphore is one");
    return rubato_kv_table_clock(table, error) &&
           (is_first || call_sleep(worker, release->ms, error));
}

static bool sleep_under_bsp(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS, .model = "bsp" };
    const char *const tables[] = { "t", NULL };

    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "sleep", sleep_after_clock, data, tables, error) &&
           rubato_engine_barrier(engine, error);
}

static bool sleep_long(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS };
    const char *const tables[] = { "t", NULL };

    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "sleep", sleep_in_task, data, tables, error) &&
           rubato_engine_barrier(engine, error);
}

/* Its node's heartbeats go on meanwhile. */
START_TEST(node_whose_handler_takes_long_is_not_lost)
{
    const uint32_t timeout_ms = PATIENCE_MS, ms = TAKES_MS;
    ClusterShape shape = { .n_nodes = 2,
                           .nodes = { { 1, 1 }, { 1, 1 } },
                           .timeout_ms = timeout_ms,
                           .stall_ms = timeout_ms / 4,
                           .over = shapes[_i].over };
    ClusterRun *run = cluster_run_new(&shape);
    g_autofree char *text =
        g_strdup_printf("worker 0 waits for an answer of node %u about table t", CLUSTER_IDS[1]);

    cluster_start(run, sleep_long, &ms);
    cluster_wait_for(run, 0, text);
    cluster_wait_for(run, 0, "whose handler sleep it has called");
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

START_TEST(node_whose_handler_was_released_by_a_clock_is_not_lost)
{
    ClusterShape shape = { .n_nodes = 2,
                           .nodes = { { 1, 1 }, { 1, 1 } },
                           .timeout_ms = PATIENCE_MS,
                           .stall_ms = 100,
                           .over = shapes[_i].over };
    ClusterRun *run = cluster_run_new(&shape);
    Release *release =
        mmap(NULL, sizeof *release, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert(release != MAP_FAILED);
    release->ms = TAKES_MS;
    ck_assert_int_eq(sem_init(&release->call_waits, /* pshared= */ 1, 0), 0);
    cluster_start(run, sleep_under_bsp, release);
    cluster_wait_for(run, 1, "worker 1 waits for");
    ck_assert_int_eq(sem_post(&release->call_waits), 0);
    cluster_expect_success(run);
    cluster_run_free(run);
    munmap(release, sizeof *release);
}
END_TEST

/* ---- a node that dies while it runs a handler ---- */

/* Worker 0 calls by ticket, worker 1 waits in the call itself. Both are on node 0, part 1 is on
 * node 1. */
static bool call_the_dying(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall die = {
        .table = "t", .handler = "die", .scope = RUBATO_SCOPE_PART, .part = 1
    };
    g_autoptr(GError) found = NULL;
    GBytes *result = NULL;

    (void)user_data;
    if (rubato_worker_rank(worker) == 0) {
        EXPECT(rubato_worker_call_handler_async(worker, &die, &result, NULL, error) != 0, "%s",
               (*error)->message);
        EXPECT(!rubato_worker_wait_all(worker, &found), "an answer of the dead");
    } else {
        EXPECT(!rubato_worker_call_handler(worker, &die, &result, &found), "an answer of the dead");
    }
    EXPECT(result == NULL, "a result of the dead");
    return cluster_expect_error(&found, RUBATO_ERROR_CANCELLED, "table t", error);
}

static bool outlive_a_call(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS };
    const char *const tables[] = { "t", NULL };
    g_autoptr(GError) found = NULL;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    EXPECT(!cluster_run_task(engine, "die", call_the_dying, NULL, tables, &found), "it went well");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, "was lost", error);
}

START_TEST(node_that_dies_while_it_runs_a_handler_ends_the_call)
{
    ClusterShape shape = { .n_nodes = 2,
                           .nodes = { { 1, 2 }, { 1, 0 } },
                           .timeout_ms = cluster_short_timeout_ms() };
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, outlive_a_call, NULL);
    cluster_expect_end(run, 1, -SIGKILL);
    cluster_expect_end(run, 0, 0);
    cluster_run_free(run);
}
END_TEST

/* ---- a node that sends nonsense ---- */

/* The bytes of a call, some of which are sent. */
typedef struct {
    const char *says; /* NULL: nothing is wrong with them yet */
    const char *name;
    uint64_t n_argument_bytes, is_whole, n_keys, first_key, n_key_bytes;
    uint64_t n_bytes; /* that it says it has in all */
    size_t first, n;  /* those that are sent */
    uint64_t serial;
    uint32_t worker;
} WrongCall;

#define SAME (32 + 6 * 8)
#define NOBODY BAD_GRADIENTS_NO_WORKER
#define NO_SIZES "the call of a handler whose sizes do not fit its bytes"
#define NO_NEXT "bytes of a handler's call that do not follow the last ones"
#define NO_NUMBERS "bytes of a handler's call without their numbers"

static const WrongCall wrong_calls[] = {
    { "the call of a handler without a name", "norm", 0, 1, 0, 0, 0, 8, 0, 8, 1, NOBODY },
    { "the call of a handler without a name", "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", 0, 1, 0, 0, 0,
      SAME, 0, SAME, 2, NOBODY },
    { "a call of a handler that is not registered here", "none", 0, 1, 0, 0, 0, SAME, 0, SAME, 3,
      NOBODY },
    { NO_SIZES, "norm", 1, 1, 0, 0, 0, SAME, 0, SAME, 4, NOBODY },
    { NO_SIZES, "norm", 0, 0, 1, 0, 8, SAME, 0, SAME, 5, NOBODY },
    { NO_SIZES, "norm", UINT64_MAX - 7, 0, 1, 0, 8, SAME, 0, SAME, 6, NOBODY },
    { "the call of a handler whose keys are not as many as it says", "norm", 0, 0, 5, 0, 8,
      SAME + 8, 0, SAME + 8, 7, NOBODY },
    { "the call of a handler on all rows that names keys", "norm", 0, 1, 2, 0, 0, SAME, 0, SAME, 8,
      NOBODY },
    { "the call of a handler on all rows that names keys", "norm", 0, 7, 0, 0, 0, SAME, 0, SAME, 9,
      NOBODY },
    { "a call of a handler with a key that is not here", "norm", 0, 0, 2, N_KEYS - 1, 0, SAME, 0,
      SAME, 10, NOBODY },
    { "a call of a handler with a key that is not here", "norm", 0, 0, UINT64_MAX, 2, 0, SAME, 0,
      SAME, 11, NOBODY },
    { "a number of what this server does not have", "norm", 0, 1, 0, 0, 0, SAME, 60, 50, 12,
      NOBODY },
    { "the call of a handler with more bytes than one may have", "norm", 0, 1, 0, 0, 0, UINT64_MAX,
      0, SAME, 13, NOBODY },
    { NO_NUMBERS, "norm", 0, 1, 0, 0, 0, SAME, 0, 0, 14, NOBODY },
    { NULL, "norm", 0, 1, 0, 0, 0, SAME, 0, 40, 15, NOBODY },
    { NO_NEXT, "norm", 0, 1, 0, 0, 0, SAME, 48, 24, 15, NOBODY },
    { NULL, "norm", 0, 1, 0, 0, 0, SAME, 0, 40, 16, NOBODY },
    { NO_NEXT, "norm", 0, 1, 0, 0, 0, SAME + 8, 40, 24, 16, NOBODY },
    { "a request of a worker between tasks", "norm", 0, 1, 0, 0, 0, SAME, 0, SAME, 17, 1 },
};

/* Node 0 sends them to the server of node 1 as itself would. */
static void send_wrong(RubatoEngine *engine, const WrongCall *wrong)
{
    const uint64_t numbers[] = { wrong->n_argument_bytes, wrong->is_whole, wrong->n_keys,
                                 wrong->first_key, wrong->n_key_bytes };
    char bytes[2 * SAME] = { 0 };
    HandlerCall call = { .serial = wrong->serial, .n_payload_bytes = wrong->n_bytes };
    Message message = { .kind = MESSAGE_HANDLER,
                        .table = 0,
                        .part = 1,
                        .server = 1,
                        .node = engine->office.self,
                        .row_bytes = 1,
                        .request = { .worker = wrong->worker,
                                     .keys = { .first = wrong->first, .n = wrong->n },
                                     .input = bytes + wrong->first,
                                     .handler_call = &call } };
    const size_t n_name = strlen(wrong->name);

    memcpy(bytes, wrong->name, MIN(n_name, HANDLER_NAME_BYTES));
    memcpy(bytes + HANDLER_NAME_BYTES, numbers, sizeof numbers);
    post_office_tell(&engine->office, &message);
}

static bool send_all_wrong(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS };

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[0]) {
        for (size_t i = 0; i < G_N_ELEMENTS(wrong_calls); i++)
            send_wrong(engine, &wrong_calls[i]);
        post_office_flush(&engine->office);
        if (!rubato_engine_call_handler(
                engine, &(RubatoHandlerCall){ .table = "t", .handler = "norm" }, NULL, error))
            return false;
    }
    return rubato_engine_barrier(engine, error);
}

START_TEST(bytes_that_are_no_call_are_refused)
{
    ClusterShape shape = { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .over = shapes[_i].over };
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, send_all_wrong, NULL);
    cluster_expect_success(run);
    for (size_t i = 0; i < G_N_ELEMENTS(wrong_calls); i++)
        if (wrong_calls[i].says != NULL) {
            g_autofree char *text = g_strdup_printf("sent %s; dropped", wrong_calls[i].says);

            cluster_expect_text(run, 1, text);
        }
    cluster_run_free(run);
}
END_TEST

/* ---- others are registered ---- */

static bool meet(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return rubato_engine_barrier(engine, error);
}

static const RubatoHandlerOps extra = { .name = "extra", .run = run_reverse };
static const RubatoHandlerOps other_extra = { .name = "extra",
                                              .access = RUBATO_ACCESS_WRITES,
                                              .run = run_reverse };

START_TEST(node_with_other_handlers_is_refused_by_name)
{
    ClusterRun *run = new_run(0);

    if (_i == 1)
        ck_assert(rubato_register_handler(&other_extra, NULL));
    cluster_start_node(run, 0, meet, NULL);
    if (_i == 0)
        ck_assert(rubato_register_handler(&extra, NULL));
    cluster_start_node(run, 1, meet, NULL);
    if (_i == 0) {
        cluster_expect_end(run, 1, CLUSTER_NOT_STARTED);
        cluster_expect_text(run, 1, "has registered the handler extra, the scheduler has not");
    } else { /* the same on both: they meet */
        cluster_expect_success(run);
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_handlers");
    TCase *const cases = cluster_add_case(suite, "handlers");
    const int n_shapes = (int)G_N_ELEMENTS(shapes);

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_add_loop_test(cases, results_are_those_of_one_node, 0, n_shapes);
    tcase_add_loop_test(cases, arguments_and_results_go_in_many_pieces, 0, n_shapes);
    tcase_add_loop_test(cases, failure_of_a_handler_reaches_its_caller_alone, 0, n_shapes);
    tcase_add_loop_test(cases, node_whose_handler_takes_long_is_not_lost, 0, 2);
    tcase_add_loop_test(cases, node_whose_handler_was_released_by_a_clock_is_not_lost, 0, 2);
    tcase_add_test(cases, node_that_dies_while_it_runs_a_handler_ends_the_call);
    tcase_add_loop_test(cases, bytes_that_are_no_call_are_refused, 0, 2);
    tcase_add_loop_test(cases, node_with_other_handlers_is_refused_by_name, 0, 2);
    return run_suite(suite);
}
