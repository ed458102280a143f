/* All log lines of the library have the domain "rubato", so that programs can recognise them.
 *
 * docs/liveness.md: A call that waits */
#include <rubato/rubato.h>

#include "tests/support/runner.h"

static unsigned n_lines, n_of_domain; /* written by the case's one thread */

static GLogWriterOutput count_lines(GLogLevelFlags level, const GLogField *fields, gsize n,
                                    gpointer user_data)
{
    (void)level;
    (void)user_data;
    n_lines++;
    for (gsize i = 0; i < n; i++)
        if (g_str_equal(fields[i].key, "GLIB_DOMAIN") && g_str_equal(fields[i].value, "rubato"))
            n_of_domain++;
    return G_LOG_WRITER_HANDLED;
}

START_TEST(every_layer_logs_in_the_domain)
{
    const RubatoTableSpec nameless = { 0 };
    float value;

    g_log_set_writer_func(count_lines, NULL, NULL);
    ck_assert_ptr_null(rubato_engine_new(NULL, NULL));             /* engine/ */
    ck_assert(!rubato_kv_table_get(NULL, NULL, 1, &value, NULL));  /* tables/ */
    ck_assert(!rubato_engine_create_table(NULL, &nameless, NULL)); /* engine/ */
    ck_assert_uint_ge(n_lines, 3);
    ck_assert_uint_eq(n_of_domain, n_lines);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("log_domain");
    TCase *const all = tcase_create("domain");

    tcase_add_test(all, every_layer_logs_in_the_domain);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
