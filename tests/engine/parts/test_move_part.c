/* Parts that move between the servers of a process: what moves with them, and messages that are
 * sent to their old server. test_conformance checks that every Get stays exact and within its
 * bounds while parts move all the time. */
#include <string.h>

#include "engine/engine_private.h"
#include "models/update/bad_gradients.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define I64_TABLE(...)                                \
    &(RubatoTableSpec)                                \
    {                                                 \
        .name = "t", .dtype = RUBATO_I64, __VA_ARGS__ \
    }

enum { N_KEYS = 40, N_PARTS = 5, N_SERVERS = 3 };

/* ---- between tasks ---- */

typedef struct {
    double rows[N_KEYS], states[4 * N_KEYS];
    RubatoKey *keys;
    size_t n_keys;
} Seen;

static Seen see(RubatoEngine *engine)
{
    Seen seen;

    ck_assert(rubato_engine_get_range(engine, "t", 0, N_KEYS, seen.rows, NULL));
    ck_assert(rubato_engine_get_state_range(engine, "t", 0, N_KEYS, seen.states, NULL));
    ck_assert(rubato_engine_list_keys(engine, "t", &seen.keys, &seen.n_keys, NULL));
    return seen;
}

static void check_same(RubatoEngine *engine, const Seen *seen)
{
    const Seen now = see(engine);

    ck_assert_mem_eq(now.rows, seen->rows, sizeof now.rows);
    ck_assert_mem_eq(now.states, seen->states, sizeof now.states);
    ck_assert_uint_eq(now.n_keys, seen->n_keys);
    ck_assert_mem_eq(now.keys, seen->keys, now.n_keys * sizeof *now.keys);
    g_free(now.keys);
}

START_TEST(rows_and_state_go_with_their_part)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    double deltas[N_KEYS];
    uint64_t n_rows = 0;
    Seen seen;

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_F64,
                                             .n_keys = _i == 0 ? N_KEYS : 0,
                                             .parts = N_PARTS,
                                             .update = "adam" });
    for (int i = 0; i < N_KEYS; i++)
        deltas[i] = 1.0 / (i + 1);
    ck_assert(rubato_engine_add_range(engine, "t", 0, N_KEYS, deltas, NULL));
    seen = see(engine);
    for (uint32_t part = 0; part < N_PARTS; part++) {
        ck_assert(rubato_engine_move_part(engine, "t", part, 2, NULL));
        check_same(engine, &seen);
    }
    ck_assert_uint_eq(count_rows_of(engine, "t", 0), 0);
    ck_assert_uint_eq(count_rows_of(engine, "t", 1), 0);
    ck_assert_uint_eq(count_rows_of(engine, "t", 2), N_KEYS);
    ck_assert(rubato_engine_move_part(engine, "t", 3, 2, NULL)); /* there already */
    ck_assert(rubato_engine_move_part(engine, "t", 3, 0, NULL));
    check_same(engine, &seen);
    g_free(seen.keys);

    /* what is done to them afterwards is done where they are */
    ck_assert(rubato_engine_add_range(engine, "t", 0, N_KEYS, deltas, NULL));
    ck_assert(rubato_engine_reset_range(engine, "t", 0, N_KEYS, NULL));
    ck_assert(rubato_engine_get_range(engine, "t", 0, N_KEYS, deltas, NULL));
    for (int i = 0; i < N_KEYS; i++)
        ck_assert(deltas[i] == 0);
    for (uint32_t server = 0; server < N_SERVERS; server++)
        n_rows += count_rows_of(engine, "t", server);
    ck_assert_uint_eq(n_rows, N_KEYS);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    rubato_engine_free(engine);
}
END_TEST

/* ---- what waits ---- */

static const char *const models[] = { "bsp", "ssp", "sparse_ssp" };

typedef struct {
    bool is_bsp;
    bool in_one; /* worker 0 adds and asks in one request */
    Event asked, moved;
} Scene;

/* Worker 0 asks at clock 1, and adds once more, before worker 1 has come there. The part moves, and
 * then moves on; only then worker 1 adds and clocks. */
static bool ask_and_add(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 1;
    const int64_t first[] = { 1, 20 }, later = 300;
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoTicket ticket;
    int64_t value = -1;

    TRY(table != NULL);
    if (rank == 1)
        TRY(event_await(&scene->moved, 1, worker, error));
    TRY(rubato_kv_table_add(table, &key, 1, &first[rank], error));
    TRY(rubato_kv_table_clock(table, error));
    if (rank == 1)
        return true;
    ticket = scene->in_one
                 ? rubato_kv_table_add_get_async(table, &key, 1, &later, &value, NULL, error)
                 : rubato_kv_table_get_async(table, &key, 1, &value, NULL, error);
    TRY(ticket != 0);
    if (!scene->in_one)
        TRY(rubato_kv_table_add(table, &key, 1, &later, error));
    event_raise(&scene->asked);
    TRY(rubato_worker_wait(worker, ticket, error));
    /* under BSP exactly the Adds of clock 0; otherwise those, and perhaps the later one */
    REQUIRE(value == 321 ? !scene->is_bsp : value == 21 && (scene->is_bsp || !scene->in_one));
    return true;
}

START_TEST(a_get_that_waits_is_answered_by_the_server_that_got_the_part)
{
    const char *const model = models[_i / 2];
    Scene scene = { .is_bsp = strcmp(model, "bsp") == 0,
                    .in_one = _i % 2 == 1,
                    .asked = EVENT_INIT,
                    .moved = EVENT_INIT };
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "ask",
                              .run = ask_and_add,
                              .user_data = &scene,
                              .tables = tables,
                              .workers_per_node = 2 };
    g_autoptr(GError) error = NULL;
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    RubatoTaskRun *run;

    create_table(engine, I64_TABLE(.n_keys = 4, .parts = 1, .model = model));
    run = rubato_engine_start(engine, &task, &error);
    ck_assert(run != NULL);
    event_wait(&scene.asked, 1);
    ck_assert(rubato_engine_move_part(engine, "t", 0, 1, NULL));
    ck_assert(rubato_engine_move_part(engine, "t", 0, 2, NULL));
    event_raise(&scene.moved);
    ck_assert_msg(rubato_task_run_wait(run, &error), "%s", error == NULL ? "" : error->message);
    ck_assert_int_eq(read_i64(engine, "t", 1), 321);
    rubato_engine_free(engine);
}
END_TEST

/* ---- what comes late ---- */

/* Asks a server that once had the part, as a sender does that does not know of the move. */
static CallStatus ask_at(RubatoEngine *engine, uint32_t server, uint32_t part, MessageKind kind,
                         int64_t *value)
{
    Call call;
    Message message = {
        .kind = kind,
        .table = 0,
        .part = part,
        .server = server,
        .node = engine->office.self,
        .row_bytes = sizeof *value,
        .call = &call,
        .end = message_end_call,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                     .keys = { .first = 0, .n = kind == MESSAGE_FENCE ? 0 : 1 },
                     .input = kind == MESSAGE_ADD ? value : NULL,
                     .output = kind == MESSAGE_GET ? value : NULL },
    };

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&engine->office, &message);
    call_sent(&call);
    call_wait(&call, -1);
    return (CallStatus)call.status;
}

START_TEST(a_get_that_comes_late_may_be_sent_again)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    int64_t value = 5, seen = 0;

    create_table(engine, I64_TABLE(.n_keys = 4, .parts = 1));
    ck_assert_uint_eq(ask_at(engine, 0, 0, MESSAGE_ADD, &value), CALL_OK);
    for (uint32_t home = 0; home <= N_SERVERS; home++) { /* to the first again */
        ck_assert(rubato_engine_move_part(engine, "t", 0, home % N_SERVERS, NULL));
        for (uint32_t server = 0; server < N_SERVERS; server++) {
            const bool is_here = server == home % N_SERVERS;

            ck_assert_uint_eq(ask_at(engine, server, 0, MESSAGE_GET, &seen),
                              is_here ? CALL_OK : CALL_MOVED);
            /* no client of this table sends what changes rows to a server without the part */
            if (!is_here)
                ck_assert_uint_eq(ask_at(engine, server, 0, MESSAGE_ADD, &value), CALL_REFUSED);
            ck_assert_uint_eq(ask_at(engine, server, 0, MESSAGE_FENCE, NULL), CALL_OK);
        }
        ck_assert_int_eq(seen, value);
    }
    rubato_engine_free(engine);
}
END_TEST

/* A worker adds without end while the part goes round: each Add takes effect once. */
typedef struct {
    Event begun;
    _Atomic bool stops;
    int64_t n_added;
} Stream;

static bool add_without_end(RubatoWorker *worker, void *user_data, GError **error)
{
    Stream *stream = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 1;
    const int64_t one = 1;
    int64_t value = 0;

    TRY(table != NULL);
    event_raise(&stream->begun);
    while (!atomic_load(&stream->stops)) {
        if (stream->n_added % 2 == 0) {
            TRY(rubato_kv_table_add(table, &key, 1, &one, error));
            TRY(rubato_kv_table_get(table, &key, 1, &value, error));
        } else {
            TRY(rubato_kv_table_add_get(table, &key, 1, &one, &value, error));
        }
        stream->n_added++;
        REQUIRE(value == stream->n_added);
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(each_add_takes_effect_once_while_the_part_moves)
{
    Stream stream = { .begun = EVENT_INIT };
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "add",
                              .run = add_without_end,
                              .user_data = &stream,
                              .tables = tables,
                              .workers_per_node = 1 };
    g_autoptr(GError) error = NULL;
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    RubatoTaskRun *run;

    create_table(engine, I64_TABLE(.n_keys = 4, .parts = 1, .model = "ssp"));
    run = rubato_engine_start(engine, &task, &error);
    ck_assert(run != NULL);
    event_wait(&stream.begun, 1);
    for (uint32_t i = 1; i <= 40; i++)
        ck_assert(rubato_engine_move_part(engine, "t", 0, i % N_SERVERS, NULL));
    atomic_store(&stream.stops, true);
    ck_assert_msg(rubato_task_run_wait(run, &error), "%s", error == NULL ? "" : error->message);
    ck_assert_int_eq(read_i64(engine, "t", 1), stream.n_added);
    rubato_engine_free(engine);
}
END_TEST

/* ---- a map that is wrong ---- */

/* How a Get is made. */
typedef enum { WAY_KV, WAY_CLIENT, WAY_TICKET, WAY_CHUNKS, WAY_SPARSE, WAY_ENGINE, N_WAYS } Way;

static bool get_by(RubatoWorker *worker, void *user_data, GError **error)
{
    const Way way = *(const Way *)user_data;
    const RubatoKey keys[] = { 0, 3 };
    const RubatoIteration iteration = { .keys = keys, .n = G_N_ELEMENTS(keys) };
    const uint64_t chunk = 0;
    int64_t values[4];

    if (way == WAY_SPARSE) {
        g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
            worker, "t", RUBATO_I64, &iteration, 1, error);

        return table != NULL && rubato_sparse_kv_client_table_get(table, values, error);
    }
    if (way == WAY_CHUNKS) {
        g_autoptr(RubatoChunkTable) table =
            rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);

        return table != NULL && rubato_chunk_table_get_chunks(table, &chunk, 1, values, error);
    }
    if (way == WAY_KV) {
        g_autoptr(RubatoKVTable) table =
            rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

        return table != NULL && rubato_kv_table_get(table, keys, 2, values, error);
    }
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    RubatoTicket ticket;

    TRY(table != NULL);
    if (way == WAY_CLIENT)
        return rubato_kv_table_get(table, keys, 2, values, error);
    ticket = rubato_kv_table_get_async(table, keys, 2, values, NULL, error);
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* The map gives a part to a server that does not have it, and stays as it is. Whoever asks that
 * server is told so each time, and says who told it.
 *
 * docs/liveness.md: A node that sends nonsense */
START_TEST(a_get_that_is_told_moved_without_end_fails_and_names_the_node)
{
    const Way way = (Way)_i;
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "get",
                              .run = get_by,
                              .user_data = (void *)(uintptr_t)&way,
                              .tables = tables,
                              .workers_per_node = 2 };
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    GError *error = NULL;
    Table *table;
    int64_t value;
    const RubatoKey key = 0;

    create_table(engine, I64_TABLE(.n_keys = 4, .parts = 2, .chunk_size = 2,
                                   .model = way == WAY_SPARSE ? "sparse_ssp" : "ssp"));
    table = engine_find_table(engine, "t", NULL);
    part_map_open(table->map, 0, 2, 17);
    if (way == WAY_ENGINE)
        ck_assert(!rubato_engine_get(engine, "t", &key, 1, &value, &error));
    else
        ck_assert(!rubato_engine_run(engine, &task, &error));
    if (way == WAY_TICKET)
        check_error(&error, RUBATO_ERROR_TASK_FAILED, "table t", "does not have a part",
                    "part map 17", NULL);
    else if (way == WAY_ENGINE)
        check_error(&error, RUBATO_ERROR_NETWORK, "table t", "node 0", "part map 17", NULL);
    else
        check_error(&error, RUBATO_ERROR_TASK_FAILED, "table t", "node 0", "part map 17", NULL);
    part_map_open(table->map, 0, 0, 18);
    run_task_ok(engine, &task); /* nothing of it is left */
    rubato_engine_free(engine);
}
END_TEST

/* ---- what is refused ---- */

static bool move_from_inside(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(GError) refused = NULL;

    (void)worker;
    REQUIRE(!rubato_engine_move_part(user_data, "t", 0, 1, &refused));
    REQUIRE(g_error_matches(refused, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    return true;
}

START_TEST(moves_that_cannot_be_are_refused)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    GError *error = NULL;

    create_table(engine, I64_TABLE(.n_keys = 4, .parts = 2));
    ck_assert(!rubato_engine_move_part(engine, "u", 0, 0, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "u", NULL);
    ck_assert(!rubato_engine_move_part(engine, "t", 2, 0, &error));
    check_error(&error, RUBATO_ERROR_RANGE, "no part 2", "parts 0 to 1", NULL);
    ck_assert(!rubato_engine_move_part(engine, "t", 1, N_SERVERS, &error));
    check_error(&error, RUBATO_ERROR_RANGE, "server 3", "servers 0 to 2", NULL);
    run_ok(engine, 2, move_from_inside, engine, "t");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("move part");
    TCase *cases = tcase_create("move part");

    tcase_add_loop_test(cases, rows_and_state_go_with_their_part, 0, 2);
    tcase_add_loop_test(cases, a_get_that_waits_is_answered_by_the_server_that_got_the_part, 0,
                        2 * G_N_ELEMENTS(models));
    tcase_add_test(cases, a_get_that_comes_late_may_be_sent_again);
    tcase_add_test(cases, each_add_takes_effect_once_while_the_part_moves);
    tcase_add_loop_test(cases, a_get_that_is_told_moved_without_end_fails_and_names_the_node, 0,
                        N_WAYS);
    tcase_add_test(cases, moves_that_cannot_be_are_refused);
    tcase_set_timeout(cases, 60);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
