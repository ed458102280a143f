/* Waiting and staleness on the result card. */
#include "apps/kit/report/app_waits.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- from the workers to the card ---- */

static const char *const tables[] = { "t", NULL };

static bool use_and_tell(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) own = rubato_worker_open_kv_table(worker, "board", RUBATO_F32, error);
    const RubatoKey key = 0;
    float value;

    (void)user_data;
    TRY(table != NULL && own != NULL && rubato_worker_barrier(worker, error));
    for (uint32_t i = 0; i <= rubato_worker_rank(worker); i++)
        TRY(rubato_kv_table_get(table, &key, 1, &value, error) &&
            rubato_kv_table_get(own, &key, 1, &value, error));
    return app_waits_tell(worker, tables, error);
}

START_TEST(each_worker_tells_of_the_tables_asked_for)
{
    RubatoEngine *engine = engine_with_servers(2);
    const char *const all[] = { "t", "board", APP_WAITS, NULL };
    const RubatoTableSpec table = app_waits_table();
    AppWaits waits = { 0 };

    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 1 });
    create_table(engine, &(RubatoTableSpec){ .name = "board", .n_keys = 1 });
    create_table(engine, &table);
    run_task_ok(
        engine,
        &(RubatoTask){ .name = "tell", .run = use_and_tell, .tables = all, .workers_per_node = 3 });
    ck_assert(app_waits_read(&waits, engine, 3, NULL));
    ck_assert_uint_eq(waits.n_workers, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(waits.workers[i].n_gets, i + 1);
        ck_assert_uint_eq(waits.workers[i].n_barriers, 1);
        ck_assert_uint_gt(waits.workers[i].barrier_wait_ns, 0);
    }
    app_waits_clear(&waits);
    rubato_engine_free(engine);
}
END_TEST

/* ---- how it looks ---- */

static char *text_of(const AppWaits *waits)
{
    GString *text = g_string_new(NULL);

    app_waits_add_text(waits, text);
    return g_string_free(text, FALSE);
}

static char *json_of(const AppWaits *waits)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();

    json_builder_begin_object(builder);
    app_waits_add_json(waits, builder);
    json_builder_end_object(builder);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    return json_generator_to_data(generator, NULL);
}

static void check_card(const AppWaits *waits, const char *text, const char *json)
{
    g_autofree char *shown = text_of(waits);
    g_autofree char *told = json_of(waits);

    ck_assert_str_eq(shown, text);
    ck_assert_str_eq(told, json);
}

START_TEST(the_card_shows_waits_by_worker_and_gets_by_staleness)
{
    RubatoWorkerStats workers[] = {
        { .n_gets = 6, .get_wait_ns = 250000000, .staleness = { 4, 2 } },
        { .n_gets = 2, .barrier_wait_ns = 500000000, .send_wait_ns = 1000000000 },
    };

    workers[0].staleness_sum = 2;
    workers[0].staleness_max = 1;
    workers[1].staleness[3] = 2;
    workers[1].staleness_sum = 6;
    workers[1].staleness_max = 3;
    check_card(&(AppWaits){ .n_workers = 2, .workers = workers },
               "  waiting        0.25, 1.50 s by worker\n"
               "  staleness seen mean 1.00, at most 3; 0: 50 %, 1: 25 %, 2: 0 %, 3: 25 %\n",
               "{\"waits\":[0.25,1.5],\"staleness_seen\":[4,2,0,2],"
               "\"staleness_mean\":1.0,\"staleness_most\":3}");
}
END_TEST

START_TEST(of_many_workers_and_stale_gets_the_card_shows_the_range)
{
    RubatoWorkerStats workers[12] = { { .n_gets = 0 } };

    for (uint32_t i = 0; i < G_N_ELEMENTS(workers); i++)
        workers[i].get_wait_ns = UINT64_C(500000000) * (i % 2);
    workers[3].n_gets = workers[3].staleness[0] = 1;
    workers[7].n_gets = workers[7].staleness[RUBATO_STALENESS_BUCKETS - 1] = 1;
    workers[7].staleness_max = workers[7].staleness_sum = 100;

    const AppWaits waits = { .n_workers = G_N_ELEMENTS(workers), .workers = workers };
    g_autofree char *text = text_of(&waits);
    g_autofree char *json = json_of(&waits);
    ck_assert_str_eq(text, "  waiting        0.00 to 0.50, mean 0.25 s by worker\n"
                           "  staleness seen mean 50.00, at most 100\n");
    ck_assert_ptr_nonnull(strstr(json, "\"staleness_seen\":[1,0,0,"));
    ck_assert_ptr_nonnull(strstr(json, ",0,1],"));
    ck_assert(g_str_has_suffix(json, "\"staleness_mean\":50.0,\"staleness_most\":100}"));
}
END_TEST

START_TEST(where_nothing_was_told_the_card_says_nothing)
{
    RubatoWorkerStats idle = { .n_gets = 0 };

    check_card(&(AppWaits){ 0 }, "", "{}");
    check_card(&(AppWaits){ .n_workers = 1, .workers = &idle }, "  waiting        0.00 s\n",
               "{\"waits\":[0.0],\"staleness_seen\":[],"
               "\"staleness_mean\":0.0,\"staleness_most\":0}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_waits");
    TCase *tcase = tcase_create("app_waits");

    tcase_add_test(tcase, each_worker_tells_of_the_tables_asked_for);
    tcase_add_test(tcase, the_card_shows_waits_by_worker_and_gets_by_staleness);
    tcase_add_test(tcase, of_many_workers_and_stale_gets_the_card_shows_the_range);
    tcase_add_test(tcase, where_nothing_was_told_the_card_says_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
