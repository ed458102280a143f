/* Rows of tables that forget, on the result card. */
#include "apps/kit/report/app_table_rows.h"

#include <string.h>

#include "apps/kit/report/app_progress.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Writes N_ROWS keys, waits until their clocks have passed, and until a server has removed them. */
enum { N_ROWS = 200000, N_OLD = 3000 };

static bool let_rows_expire(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "old", RUBATO_F32, error);
    RubatoTableStats stats = { .n_expired = 0 };
    RubatoKey keys[N_OLD];
    float ones[N_OLD];

    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_OLD; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    if (!rubato_kv_table_add(table, keys, N_OLD, ones, error))
        return false;
    for (int clock = 0; clock < 3; clock++)
        if (!rubato_kv_table_clock(table, error))
            return false;
    while (stats.n_expired < N_OLD) { /* it ends: servers sweep as long as the task goes on */
        g_usleep(1000);               /* only so that others may run */
        if (!rubato_engine_table_stats(user_data, "old", &stats, error))
            return false;
    }
    return true;
}

START_TEST(the_card_has_what_was_evicted_and_what_has_expired)
{
    const RubatoTableSpec specs[] = {
        { .name = "old", .expire = "clocks", .expire_after = 2 },
        { .name = "few", .max_bytes = 2 << 20 },
    };
    RubatoEngine *engine = engine_with_servers(1);
    g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(AppTableRows));
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_ROWS);
    g_autofree float *ones = g_new(float, N_ROWS);

    for (size_t i = 0; i < N_ROWS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        create_table(engine, &specs[i]);
    ck_assert(rubato_engine_add(engine, "few", keys, N_ROWS, ones, NULL));
    run_ok(engine, 1, let_rows_expire, engine, "old");
    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        ck_assert(app_table_rows_count(counts, engine, specs[i].name, &specs[i], NULL));
    ck_assert_uint_eq(counts->len, 2);

    const RubatoTableStats *few = &g_array_index(counts, AppTableRows, 1).sum;
    g_autofree char *evicted = NULL;
    char number[32];

    app_format_count(few->n_evicted, number, sizeof number);
    evicted = g_strdup_printf("0 refused, %s evicted, 0 expired\n", number);
    ck_assert_uint_gt(few->n_evicted, N_ROWS / 4);
    ck_assert_uint_eq(few->n_evicted + few->n_rows, N_ROWS);
    app_table_rows_add_text(counts, text);
    ck_assert_msg(strstr(text->str, evicted) != NULL, "%s", text->str);
    ck_assert_msg(strstr(text->str, "0 refused, 0 evicted, 3,000 expired\n") != NULL, "%s",
                  text->str);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(the_card_has_the_rows_of_tables_that_forget)
{
    const RubatoTableSpec specs[] = {
        { .name = "all" },
        { .name = "some", .admit = "count", .admit_count = 2 },
    };
    RubatoEngine *engine = engine_with_servers(2);
    g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(AppTableRows));
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const RubatoKey keys[] = { 1, 2, 3 };
    const float ones[] = { 1, 1, 1 };

    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++) {
        create_table(engine, &specs[i]);
        ck_assert(rubato_engine_add(engine, specs[i].name, keys, 3, ones, NULL));
        ck_assert(rubato_engine_add(engine, specs[i].name, keys, 2, ones, NULL));
        ck_assert(app_table_rows_count(counts, engine, specs[i].name, &specs[i], NULL));
    }
    ck_assert_uint_eq(counts->len, 1);
    app_table_rows_add_text(counts, text);
    ck_assert_msg(g_str_has_prefix(text->str, "  some           2 rows, ") &&
                      strstr(text->str, "bytes, 2 admitted, 3 refused, 0 evicted, 0 expired\n"),
                  "%s", text->str);
    json_builder_begin_object(builder);
    app_table_rows_add_json(counts, builder);
    app_table_rows_add_json(NULL, builder);
    json_builder_end_object(builder);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    JsonObject *tables = json_object_get_object_member(json_node_get_object(root), "tables");
    JsonObject *some = json_object_get_object_member(tables, "some");
    ck_assert_int_eq(json_object_get_int_member(some, "refused"), 3);
    ck_assert_int_eq(json_object_get_int_member(some, "rows"), 2);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_table_rows");
    TCase *tcase = tcase_create("rows");

    tcase_add_test(tcase, the_card_has_the_rows_of_tables_that_forget);
    tcase_add_test(tcase, the_card_has_what_was_evicted_and_what_has_expired);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
