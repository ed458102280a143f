/* Rows of tables that forget, on the result card. */
#include "apps/kit/report/app_table_rows.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

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
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
