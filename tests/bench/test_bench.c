/* rubato-bench works: every case runs, briefly, and its results make sense. How fast is not asked. */
#include <check.h>
#include <gio/gio.h>
#include <json-glib/json-glib.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

static char *run_bench(const char *const *arguments, int *status)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    g_autofree char *program = g_build_filename(TEST_BIN_DIR, "rubato-bench", NULL);
    g_autoptr(GSubprocess) process = NULL;
    g_autoptr(GError) error = NULL;
    char *output = NULL;

    g_ptr_array_add(argv, program);
    for (; *arguments != NULL; arguments++)
        g_ptr_array_add(argv, (char *)(uintptr_t)*arguments);
    g_ptr_array_add(argv, NULL);
    process = g_subprocess_newv((const char *const *)argv->pdata,
                                G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_SILENCE,
                                &error);
    ck_assert_msg(process != NULL, "%s", error == NULL ? "" : error->message);
    ck_assert(g_subprocess_communicate_utf8(process, NULL, NULL, &output, NULL, NULL));
    *status = g_subprocess_get_if_exited(process) ? g_subprocess_get_exit_status(process) : -1;
    return output;
}

static void check_case(JsonObject *result)
{
    const char *name = json_object_get_string_member(result, "name");
    const double min = json_object_get_double_member(result, "min");
    const double median = json_object_get_double_member(result, "median");
    const double max = json_object_get_double_member(result, "max");
    const double limit = json_object_get_double_member(result, "limit_median");

    ck_assert_msg(min > 0 && min <= median && median <= max, "%s: %g, %g, %g", name, min, median,
                  max);
    ck_assert_msg(limit > 0, "%s: limit %g", name, limit);
    ck_assert_double_eq_tol(json_object_get_double_member(result, "ratio"), median / limit,
                            1e-6 * median / limit);
}

START_TEST(every_case_runs_and_is_reported_as_json)
{
    const char *const arguments[] = { "--quick", "--repeat", "3", "--json", "-", NULL };
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autoptr(GError) error = NULL;
    g_autofree char *output = NULL;
    JsonObject *root;
    JsonArray *cases;
    int status;

    output = run_bench(arguments, &status);
    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_msg(json_parser_load_from_data(parser, output, -1, &error), "%s", output);
    root = json_node_get_object(json_parser_get_root(parser));
    ck_assert(json_object_has_member(root, "machine"));
    ck_assert(json_object_has_member(root, "build"));
    cases = json_object_get_array_member(root, "cases");
    ck_assert_uint_ge(json_array_get_length(cases), 10);
    for (guint i = 0; i < json_array_get_length(cases); i++)
        check_case(json_array_get_object_element(cases, i));
}
END_TEST

START_TEST(one_case_can_be_chosen)
{
    const char *const arguments[] = { "--quick", "--case", "local-add-1", NULL };
    g_autofree char *output = NULL;
    int status;

    output = run_bench(arguments, &status);
    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(output, "local-add-1"));
    ck_assert_ptr_null(strstr(output, "local-get-1"));
}
END_TEST

START_TEST(an_unknown_case_is_refused)
{
    const char *const arguments[] = { "--case", "nonsense", NULL };
    g_autofree char *output = NULL;
    int status;

    output = run_bench(arguments, &status);
    ck_assert_int_eq(status, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_case_runs_and_is_reported_as_json);
    tcase_add_test(tcase, one_case_can_be_chosen);
    tcase_add_test(tcase, an_unknown_case_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
