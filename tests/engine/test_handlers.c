/* Handlers of a program, in one process: arguments, results, keys, failures, and what a model makes
 * of their calls. */
#include <rubato/rubato.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/engine/own_handlers.h"
#include "tests/support/runner.h"

enum { N_KEYS = 700, WIDTH = 3 };

/* ---- the handlers ---- */

/* Multiplies what it gets by 2 and adds the argument, by three ways to write. */
static bool run_twice_and(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                          GError **error)
{
    const int64_t more = rubato_read_i64(arguments);
    RubatoPartRows rows;

    (void)result;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const RubatoKey key = rubato_part_rows_key(&rows, i);
            int64_t values[WIDTH];

            if (!rubato_part_get(part, &key, 1, values, error) ||
                !rubato_part_add(part, &key, 1, values, error))
                return false;
            for (int column = 0; column < WIDTH; column++)
                values[column] = 2 * values[column] + more;
            if (!rubato_part_set(part, &key, 1, values, error))
                return false;
        }
    return true;
}

/* Writes although it says that it reads. */
static bool run_sly(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    const RubatoKey key = 0;
    const int64_t values[WIDTH] = { 0 };

    (void)arguments;
    (void)result;
    return rubato_part_set(part, &key, 1, values, error);
}

/* Asks for a key that the part does not have. */
static bool run_astray(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                       GError **error)
{
    const RubatoKey key = UINT64_MAX;
    int64_t values[WIDTH];

    (void)arguments;
    (void)result;
    return rubato_part_get(part, &key, 1, values, error);
}

static bool check_one_i64(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                          GError **error)
{
    (void)setting;
    rubato_read_i64(arguments);
    return rubato_byte_reader_finish(arguments, "its arguments", error);
}

/* ---- ops that call their engine ---- */

static RubatoEngine *engine_of_ops;
static const char *calling_op; /* the one that calls it */

/* If this is the op that calls: ends its engine, and asks it for something. Each is refused at
 * once, because it might wait for the op itself. */
static bool call_engine(const char *op, GError **error)
{
    g_autoptr(GError) refused = NULL;

    if (strcmp(op, calling_op) != 0)
        return true;
    rubato_engine_free(engine_of_ops);
    REQUIRE(!rubato_engine_call_handler(
        engine_of_ops, &(RubatoHandlerCall){ .table = "t", .handler = "norm" }, NULL, &refused));
    REQUIRE(g_error_matches(refused, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    REQUIRE(strstr(refused->message, "called from a handler") != NULL);
    return true;
}

static bool check_calling(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                          GError **error)
{
    (void)setting;
    (void)arguments;
    return call_engine("check", error);
}

static bool run_calling(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                        GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    return call_engine("run", error);
}

static bool reduce_calling(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                           RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                           GError **error)
{
    (void)setting;
    (void)arguments;
    (void)results;
    (void)n;
    (void)result;
    return call_engine("reduce", error);
}

static void register_all(void)
{
    static const RubatoHandlerOps ops[] = {
        { .name = "twice-and",
          .access = RUBATO_ACCESS_WRITES,
          .check = check_one_i64,
          .run = run_twice_and },
        { .name = "fail-to-write", .access = RUBATO_ACCESS_WRITES, .run = own_handler_fail },
        { .name = "chatty", .access = RUBATO_ACCESS_WRITES, .run = own_handler_echo },
        { .name = "calling", .check = check_calling, .run = run_calling, .reduce = reduce_calling },
        { .name = "sly", .run = run_sly },
        { .name = "astray", .run = run_astray },
    };

    own_handlers_register();
    register_handlers(ops, G_N_ELEMENTS(ops));
}

/* ---- calls ---- */

static void create_i64(RubatoEngine *engine, const char *model, bool hashed)
{
    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){ .name = "t",
                                                                 .dtype = RUBATO_I64,
                                                                 .width = WIDTH,
                                                                 .n_keys = hashed ? 0 : N_KEYS,
                                                                 .parts = 4,
                                                                 .model = model,
                                                                 .staleness = 1,
                                                                 .speculation = 1 });

    create_table(engine, &spec);
}

START_TEST(a_call_reaches_the_parts_it_names)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const char text[] = "arguments";
    GError *error = NULL;

    create_i64(engine, "asp", _i == 1);
    for (uint32_t first = 0; first < 4; first++) {
        const bool is_one = first > 0;
        g_autoptr(GBytes) result =
            call_handler(engine, &(RubatoHandlerCall){
                                     .table = "t",
                                     .handler = "echo",
                                     .arguments = text,
                                     .n_argument_bytes = sizeof text,
                                     .scope = is_one ? RUBATO_SCOPE_PART : RUBATO_SCOPE_TABLE,
                                     .part = first,
                                 });
        RubatoByteReader reader = rubato_byte_reader_of(result);

        for (uint32_t part = first; part < (is_one ? first + 1 : 4); part++) {
            ck_assert_uint_eq(rubato_read_u32(&reader), part);
            ck_assert_uint_eq(rubato_read_u64(&reader), sizeof text);
            ck_assert_mem_eq(rubato_read_bytes(&reader, sizeof text), text, sizeof text);
        }
        ck_assert(rubato_byte_reader_finish(&reader, "the result", NULL));
    }
    ck_assert(!rubato_engine_call_handler(
        engine,
        &(RubatoHandlerCall){
            .table = "t", .handler = "echo", .scope = RUBATO_SCOPE_PART, .part = 4 },
        NULL, &error));
    check_error(&error, RUBATO_ERROR_RANGE, "table t", "part 4", NULL);
}
END_TEST

START_TEST(a_call_on_keys_gets_them_in_their_order)
{
    static const RubatoKey keys[] = { 5, 600, 5, 17, 300, 301 };
    const int64_t values[][WIDTH] = { { 50 }, { 51 }, { 52 }, { 53 }, { 54 }, { 55 } };
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);
    GError *error = NULL;

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .width = WIDTH,
                                             .n_keys = _i == 1 ? 0 : N_KEYS,
                                             .parts = 1,
                                             .init_value = 9 });
    ck_assert(rubato_engine_set(engine, "t", keys, 4, values, NULL));
    g_autoptr(GBytes) result =
        call_handler(engine, &(RubatoHandlerCall){ .table = "t",
                                                   .handler = "keys",
                                                   .scope = RUBATO_SCOPE_KEYS,
                                                   .keys = keys,
                                                   .n_keys = G_N_ELEMENTS(keys) });
    RubatoByteReader reader = rubato_byte_reader_of(result);
    static const int64_t expected[] = { 52, 51, 52, 53, 9, 9 };

    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
        ck_assert_uint_eq(rubato_read_u64(&reader), keys[i]);
        ck_assert_int_eq(rubato_read_i64(&reader), expected[i]);
    }
    ck_assert(rubato_byte_reader_finish(&reader, "the result", NULL));
    ck_assert_uint_eq(count_rows(engine, "t"), _i == 1 ? 3 : N_KEYS); /* a read creates none */

    if (_i == 0) {
        const RubatoKey wrong = N_KEYS;

        ck_assert(!rubato_engine_call_handler(engine,
                                              &(RubatoHandlerCall){ .table = "t",
                                                                    .handler = "keys",
                                                                    .scope = RUBATO_SCOPE_KEYS,
                                                                    .keys = &wrong,
                                                                    .n_keys = 1 },
                                              NULL, &error));
        check_error(&error, RUBATO_ERROR_RANGE, "table t", "key 700", NULL);
    }
}
END_TEST

START_TEST(a_call_that_writes_changes_rows)
{
    static const RubatoKey keys[] = { 3, 650, 3 };
    const int64_t more = 10;
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);

    create_i64(engine, "asp", _i == 1);
    const RubatoHandlerCall twice = { .table = "t",
                                      .handler = "twice-and",
                                      .arguments = &more,
                                      .n_argument_bytes = sizeof more,
                                      .scope = RUBATO_SCOPE_KEYS,
                                      .keys = keys,
                                      .n_keys = 3 };
    g_autoptr(GBytes) nothing = call_handler(engine, &twice);
    ck_assert_uint_eq(g_bytes_get_size(nothing), 0);
    int64_t values[3][WIDTH];

    ck_assert(rubato_engine_get(engine, "t", keys, 3, values, NULL));
    ck_assert_int_eq(values[0][1], 30);
    ck_assert_int_eq(values[1][2], 10);
    ck_assert_uint_eq(count_rows(engine, "t"), _i == 1 ? 2 : N_KEYS);
}
END_TEST

static const struct {
    const char *handler;
    size_t n_bytes;
    RubatoError code;
    const char *texts[3];
} wrong[] = {
    { "no-such", 0, RUBATO_ERROR_NOT_FOUND, { "no handler no-such", "norm", "echo" } },
    { "norm", 3, RUBATO_ERROR_FORMAT, { "handler norm", "3 bytes too many", "table t" } },
    { "twice-and", 7, RUBATO_ERROR_FORMAT, { "handler twice-and", "too short", "table t" } },
    { "dot", 0, RUBATO_ERROR_INVALID, { "handler dot", "two keys", "table t" } },
    { "dot", 1, RUBATO_ERROR_HANDLER, { "handler dot failed on part 0", "node 0", "no table" } },
    { "fail", 4, RUBATO_ERROR_HANDLER, { "handler fail failed on part 2", "like", "node 0" } },
    { "fail-to-write", 4, RUBATO_ERROR_HANDLER, { "failed on part 2", "like", "table t" } },
    { "chatty", 0, RUBATO_ERROR_HANDLER, { "handler chatty", "no result", "table t" } },
    { "sly", 0, RUBATO_ERROR_HANDLER, { "handler sly", "changes rows", "READS" } },
    { "astray", 0, RUBATO_ERROR_HANDLER, { "handler astray", "a key", "table t" } },
    { "top_k", 12, RUBATO_ERROR_INVALID, { "handler top_k", "k from 1", "column below 3" } },
    { "histogram", 16, RUBATO_ERROR_FORMAT, { "handler histogram", "too short", "table t" } },
};

/* In a worker and between tasks; afterwards all goes on. */
static bool call_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    static const uint32_t arguments[] = { 2, 9, 9, 9, 9 };
    const int i = *(const int *)user_data;
    const RubatoHandlerCall asked = { .table = "t",
                                      .handler = wrong[i].handler,
                                      .arguments = arguments,
                                      .n_argument_bytes = wrong[i].n_bytes };
    GError *found = NULL;

    REQUIRE(!rubato_worker_call_handler(worker, &asked, NULL, &found));
    for (size_t text = 0; text < G_N_ELEMENTS(wrong[i].texts); text++)
        REQUIRE(strstr(found->message, wrong[i].texts[text]) != NULL, "%s", found->message);
    REQUIRE(is_error(&found, wrong[i].code, wrong[i].handler), "the code");
    return rubato_worker_call_handler(
        worker, &(RubatoHandlerCall){ .table = "t", .handler = "count" }, NULL, error);
}

START_TEST(a_call_that_fails_says_why_to_its_caller_alone)
{
    static const uint32_t arguments[] = { 2, 9, 9, 9, 9 };
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const RubatoHandlerCall asked = { .table = "t",
                                      .handler = wrong[_i].handler,
                                      .arguments = arguments,
                                      .n_argument_bytes = wrong[_i].n_bytes };
    GError *error = NULL;

    create_i64(engine, "asp",
               wrong[_i].code == RUBATO_ERROR_HANDLER && !g_str_equal(wrong[_i].handler, "astray"));
    ck_assert(!rubato_engine_call_handler(engine, &asked, NULL, &error));
    check_error(&error, wrong[_i].code, wrong[_i].texts[0], wrong[_i].texts[1], wrong[_i].texts[2],
                NULL);
    run_ok(engine, 2, call_wrongly, &_i, "t");
}
END_TEST

/* ---- models ---- */

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

/* Each worker writes by a call and reads by another: under BSP it sees just the clocks before. */
static bool add_by_handler(RubatoWorker *worker, void *user_data, GError **error)
{
    const char *model = user_data;
    const uint64_t n = rubato_worker_n_workers(worker);
    static const RubatoKey keys[] = { 1, 200, 400, 699 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    REQUIRE(table != NULL);
    for (uint64_t clock = 0; clock < 12; clock++) {
        g_autoptr(GBytes) seen = NULL;
        const int64_t ones[4 * WIDTH] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
        RubatoHandlerCall asked = {
            .table = "t", .handler = "keys", .scope = RUBATO_SCOPE_KEYS, .keys = keys, .n_keys = 4
        };

        TRY(rubato_worker_call_handler(worker, &asked, &seen, error));
        RubatoByteReader reader = rubato_byte_reader_of(seen);
        for (int i = 0; i < 4; i++) { /* by part; of hash storage in any order */
            const RubatoKey key = rubato_read_u64(&reader);

            REQUIRE(key == keys[0] || key == keys[1] || key == keys[2] || key == keys[3]);
            const uint64_t value = (uint64_t)rubato_read_i64(&reader);
            const uint64_t own = clock, all = 12 * n;

            if (g_str_equal(model, "bsp"))
                REQUIRE(value == n * clock, "%u at %u", (unsigned)value, (unsigned)clock);
            else
                REQUIRE(value >= own && value <= all, "%u at %u", (unsigned)value, (unsigned)clock);
        }
        TRY(rubato_kv_table_add(table, keys, 4, ones, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(a_call_that_reads_sees_what_a_get_sees)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const char *model = models[_i % 4];

    create_i64(engine, model, _i >= 4);
    run_ok(engine, 3, add_by_handler, (void *)(uintptr_t)model, "t");
}
END_TEST

/* The factors are such that the order matters. */
static bool write_by_handler(RubatoWorker *worker, void *user_data, GError **error)
{
    const int64_t more = rubato_worker_rank(worker) + 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoHandlerCall write = {
        .table = "t", .handler = "twice-and", .arguments = &more, .n_argument_bytes = sizeof more
    };

    (void)user_data;
    REQUIRE(table != NULL);
    for (int clock = 0; clock < 4; clock++) {
        const RubatoKey key = 5;
        int64_t before[WIDTH], after[WIDTH];

        TRY(rubato_kv_table_get(table, &key, 1, before, error));
        TRY(rubato_worker_call_handler(worker, &write, NULL, error));
        TRY(rubato_kv_table_get(table, &key, 1, after, error));
        REQUIRE(before[0] == after[0]); /* not even its own */
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(a_call_that_writes_is_applied_at_the_end_of_its_clock_in_worker_order)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    int64_t expected = 0;

    create_i64(engine, "bsp", false);
    run_ok(engine, 3, write_by_handler, NULL, "t");
    for (int clock = 0; clock < 4; clock++)
        for (int worker = 0; worker < 3; worker++)
            expected = 2 * expected + worker + 1;
    for (RubatoKey key = 0; key < N_KEYS; key += 50) {
        int64_t values[WIDTH];

        ck_assert(rubato_engine_get(engine, "t", &key, 1, values, NULL));
        ck_assert_int_eq(values[0], expected);
    }
}
END_TEST

static bool see_own_write(RubatoWorker *worker, void *user_data, GError **error)
{
    const int64_t more = 1;
    const RubatoKey key = 100 + rubato_worker_rank(worker);
    const RubatoHandlerCall write = { .table = "t",
                                      .handler = "twice-and",
                                      .arguments = &more,
                                      .n_argument_bytes = sizeof more,
                                      .scope = RUBATO_SCOPE_KEYS,
                                      .keys = &key,
                                      .n_keys = 1 };
    int64_t values[WIDTH], expected = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);

    (void)user_data;
    REQUIRE(table != NULL);
    for (int i = 0; i < 5; i++) {
        TRY(rubato_kv_table_get(table, &key, 1, values, error));
        REQUIRE(values[0] == expected);
        TRY(rubato_worker_call_handler(worker, &write, NULL, error));
        expected = 2 * expected + 1;
    }
    return true;
}

/* Also one whose rows were cached. */
START_TEST(a_worker_sees_what_its_handlers_wrote)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);

    create_table(engine,
                 &(RubatoTableSpec){ .name = "t",
                                     .dtype = RUBATO_I64,
                                     .width = WIDTH,
                                     .n_keys = N_KEYS,
                                     .model = _i == 0 ? "ssp" : "asp",
                                     .staleness = _i == 0 ? 3 : 0,
                                     .cache = _i == 0 ? RUBATO_CACHE_ALL : RUBATO_CACHE_REMOTE });
    run_ok(engine, 3, see_own_write, NULL, "t");
}
END_TEST

static bool call_whole(RubatoWorker *worker, void *user_data, GError **error)
{
    GError *found = NULL;

    (void)user_data;
    (void)error;
    REQUIRE(!rubato_worker_call_handler(
        worker, &(RubatoHandlerCall){ .table = "t", .handler = "norm" }, NULL, &found));
    REQUIRE(is_error(&found, RUBATO_ERROR_INVALID,
                     "table t: handler norm cannot be called on all rows under model sparse_ssp"));
    return true;
}

START_TEST(sparse_ssp_refuses_a_call_without_keys_by_name)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);

    create_i64(engine, "sparse_ssp", false);
    run_ok(engine, 2, call_whole, NULL, "t");
    (void)call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t", .handler = "norm" });
}
END_TEST

/* ---- a handler that loops ---- */

static bool loop_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    int64_t values[WIDTH];

    (void)user_data;
    if (rubato_worker_rank(worker) == 0)
        return rubato_worker_call_handler(
            worker,
            &(RubatoHandlerCall){ .table = "t", .handler = "loop", .scope = RUBATO_SCOPE_PART },
            NULL, error);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    REQUIRE(table != NULL);
    TRY(event_await(&own_handler_entered, 1, worker, error));
    return rubato_kv_table_get(table, &key, 1, values, error);
}

/* Lets the handler go once the log has said what had to be said. */
static void *let_go(void *data)
{
    (void)data;
    g_free(log_capture_wait("worker 0 waits", "handler loop"));
    g_free(log_capture_wait("worker 1 waits", "server 0 runs handler loop"));
    event_raise(&own_handler_leave);
    return NULL;
}

START_TEST(a_handler_that_loops_is_named_by_who_waits)
{
    const RubatoEngineConfig config = { .servers = 1, .stall_ms = 30 };
    GError *error = NULL;
    pthread_t thread;

    log_capture_start();
    g_autoptr(RubatoEngine) engine = rubato_engine_new(&config, &error);
    ck_assert_ptr_nonnull(engine);
    create_i64(engine, "asp", false);
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
    run_ok(engine, 2, loop_or_get, NULL, "t");
    pthread_join(thread, NULL);
}
END_TEST

/* ---- a handler that calls its engine ---- */

static const char *const calling_ops[] = { "check", "run", "reduce" };

static bool call_calling(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return rubato_worker_call_handler(
        worker, &(RubatoHandlerCall){ .table = "t", .handler = "calling" }, NULL, error);
}

/* By the engine, and by a worker, whose thread may run the handler. */
START_TEST(a_handler_cannot_free_its_engine)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);

    log_capture_start();
    create_i64(engine, "asp", false);
    engine_of_ops = engine;
    calling_op = calling_ops[_i];
    g_bytes_unref(call_handler(engine, &(RubatoHandlerCall){ .table = "t", .handler = "calling" }));
    ck_assert_uint_ge(
        log_capture_count("rubato_engine_free: called from a handler, whose end it may "
                          "wait for; call it from outside; the engine was not freed"),
        1);
    run_ok(engine, 1, call_calling, NULL, "t");
    (void)call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t", .handler = "norm" });
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("handlers");
    TCase *const cases = tcase_create("handlers");

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_add_loop_test(cases, a_call_reaches_the_parts_it_names, 0, 2);
    tcase_add_loop_test(cases, a_call_on_keys_gets_them_in_their_order, 0, 2);
    tcase_add_loop_test(cases, a_call_that_writes_changes_rows, 0, 2);
    tcase_add_loop_test(cases, a_call_that_fails_says_why_to_its_caller_alone, 0,
                        G_N_ELEMENTS(wrong));
    tcase_add_loop_test(cases, a_call_that_reads_sees_what_a_get_sees, 0, 8);
    tcase_add_test(cases, a_call_that_writes_is_applied_at_the_end_of_its_clock_in_worker_order);
    tcase_add_loop_test(cases, a_worker_sees_what_its_handlers_wrote, 0, 2);
    tcase_add_test(cases, sparse_ssp_refuses_a_call_without_keys_by_name);
    tcase_add_test(cases, a_handler_that_loops_is_named_by_who_waits);
    tcase_add_loop_test(cases, a_handler_cannot_free_its_engine, 0, G_N_ELEMENTS(calling_ops));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
