/* rubato-bench works: every case runs briefly, and its results are plausible. Speed is not
 * tested. */
#include <check.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "test_paths.h"
#include "tests/support/runner.h"

/* Runs the program and returns its standard output. (transfer full) */
static char *run_program(const char *const *argv, int *status)
{
    g_autoptr(GError) error = NULL;
    char *output = NULL;
    const gboolean ran = g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL,
                                      G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL,
                                      &output, NULL, status, &error);

    ck_assert_msg(ran, "%s", ran ? "" : error->message);
    *status = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
    return output;
}

static char *run_bench(const char *const *arguments, int *status)
{
    const char *argv[16] = { TEST_BIN_DIR "/rubato-bench" };

    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[i + 1] = arguments[i];
    return run_program(argv, status);
}

/* Growth may be none, or even less. */
static bool may_be_none(const char *unit)
{
    return strcmp(unit, "bytes") == 0;
}

static void check_goal(JsonObject *result, const char *name)
{
    JsonObject *goal = json_object_get_object_member(result, "goal");
    const bool lower = strcmp(json_object_get_string_member(result, "better"), "lower") == 0;
    const char *text = json_object_get_string_member(goal, "text");

    ck_assert_msg(strlen(text) > 0, "%s: the goal has no text", name);
    ck_assert(json_object_has_member(goal, "met"));
    if (json_object_get_null_member(goal, "ratio") || !json_object_get_boolean_member(goal, "met"))
        return;
    const double ratio = json_object_get_double_member(result, "ratio");
    const double wanted = json_object_get_double_member(goal, "ratio");

    ck_assert_msg(lower ? ratio <= wanted : ratio >= wanted, "%s: %g meets %g", name, ratio,
                  wanted);
}

static void check_case(JsonObject *result)
{
    const char *name = json_object_get_string_member(result, "name");
    const char *unit = json_object_get_string_member(result, "unit");
    const double min = json_object_get_double_member(result, "min");
    const double median = json_object_get_double_member(result, "median");
    const double max = json_object_get_double_member(result, "max");

    ck_assert_msg((min > 0 || may_be_none(unit)) && min <= median && median <= max,
                  "%s: %g, %g, %g", name, min, median, max);
    if (strcmp(unit, "s") == 0 && json_object_has_member(result, "p99"))
        ck_assert_msg(json_object_get_double_member(result, "p99") > 0, "%s: p99", name);
    if (!json_object_get_null_member(result, "goal"))
        check_goal(result, name);
    if (json_object_get_null_member(result, "limit_median")) {
        const bool names_none = strcmp(json_object_get_string_member(result, "limit"), "none") == 0;

        ck_assert_msg(names_none || may_be_none(unit), "%s: no limit", name);
        ck_assert_msg(!names_none || !json_object_get_null_member(result, "goal"),
                      "%s: neither limit nor goal", name);
        return;
    }
    const double limit = json_object_get_double_member(result, "limit_median");

    ck_assert_msg(limit > 0, "%s: limit %g", name, limit);
    ck_assert_double_eq_tol(json_object_get_double_member(result, "ratio"), median / limit,
                            1e-6 * median / limit);
}

/* The cases that must exist. */
static const char *const known[] = {
    "local-get-1",
    "local-add-1",
    "local-iterate-100",
    "local-iterate-100-2x2",
    "local-get-10k-dense",
    "local-add-10k-dense",
    "local-get-rows32",
    "local-add-rows32",
    "local-get-range",
    "local-add-range",
    "local-get-10k-hash",
    "local-add-10k-hash",
    "handler-norm",
    "ragged-get",
    "local-grow-hash",
    "host-get-1",
    "host-push-range",
    "host-pull-range",
    "host-get-10k-dense",
    "host-add-10k-dense",
    "host-get-10k-hash",
    "host-add-10k-hash",
    "host-get-100k-dense",
    "host-add-100k-dense",
    "host-get-100k-hash",
    "host-add-100k-hash",
    "host-priority",
    "tcp-get-1",
    "tcp-get-1-zmq",
    "tcp-push-range",
    "tcp-pull-range",
    "push-1",
    "pull-1",
    "add-get-1",
    "push-range",
    "pull-range",
    "priority",
    "tcp-add-1-pipelined",
    "zmq-push-range",
    "zmq-pull-range",
    "zmq-curve-push",
    "zmq-curve-pull",
    "tcp-mac-push",
    "tcp-mac-pull",
    "tcp-encrypt-push",
    "tcp-encrypt-pull",
    "clock-messages",
    "key-bytes-uniform",
    "key-bytes-zipf",
    "memory-dense",
    "memory-hash",
    "memory-flat-local",
    "memory-flat-host",
    "tickets",
    "handler-tickets",
    "host-iterate-ssp-2",
    "tcp-iterate-ssp-2",
    "replica-add-10k-0",
    "replica-add-10k-1",
    "replica-get-1-0",
    "replica-get-1-1",
    "replica-iterate-100",
    "replica-iterate-100-replace",
    "replica-copy-dense",
};

static void check_known(JsonArray *cases)
{
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        bool found = false;

        for (guint at = 0; at < json_array_get_length(cases); at++)
            found |= strcmp(known[i], json_object_get_string_member(
                                          json_array_get_object_element(cases, at), "name")) == 0;
        ck_assert_msg(found, "there is no case %s", known[i]);
    }
}

/* Twice: the second time it meets what the first one left. */
START_TEST(every_case_runs_and_is_reported_as_json)
{
    const char *const arguments[] = { "--quick", "--repeat", "2", "--json", "-", NULL };
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
    check_known(cases);
    for (guint i = 0; i < json_array_get_length(cases); i++)
        check_case(json_array_get_object_element(cases, i));
}
END_TEST

/* The case of that name. */
static JsonObject *find_case(JsonArray *cases, const char *name)
{
    for (guint i = 0; i < json_array_get_length(cases); i++) {
        JsonObject *const one = json_array_get_object_element(cases, i);

        if (strcmp(json_object_get_string_member(one, "name"), name) == 0)
            return one;
    }
    ck_abort_msg("there is no case %s", name);
}

static double share_of(JsonObject *one, JsonObject *other, const char *member)
{
    return json_object_get_double_member(one, member) /
           json_object_get_double_member(other, member);
}

/* More workers stand beside fewer of the same run; the goal is what the limit keeps, if that is
 * less. */
static void check_share(JsonArray *cases, const char *name, const char *fewer)
{
    JsonObject *const more = find_case(cases, name), *const other = find_case(cases, fewer);
    JsonObject *const beside = json_object_get_object_member(more, "beside");
    JsonObject *const goal = json_object_get_object_member(more, "goal");
    const double share = json_object_get_double_member(beside, "share");
    const double limit_share = json_object_get_double_member(beside, "limit_share");
    const double wanted = json_object_get_double_member(goal, "share");

    ck_assert_str_eq(json_object_get_string_member(beside, "name"), fewer);
    ck_assert_double_eq_tol(share, share_of(more, other, "median"), 1e-6 * share);
    ck_assert_double_eq_tol(limit_share, share_of(more, other, "limit_median"), 1e-6 * limit_share);
    ck_assert_int_eq(json_object_get_boolean_member(goal, "met"),
                     share >= wanted || share >= limit_share);
}

START_TEST(more_workers_stand_beside_fewer_of_the_same_run)
{
    const char *const arguments[] = { "-q",
                                      "-r",
                                      "3",
                                      "-c",
                                      "local-scale-asp-1x1",
                                      "-c",
                                      "local-scale-asp-2x1",
                                      "-c",
                                      "local-scale-asp-2x2",
                                      "--json",
                                      "-",
                                      NULL };
    const char *const alone[] = {
        "-q", "-r", "1", "-c", "local-scale-asp-2x1", "--json", "-", NULL
    };
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonArray *cases;
    int status;
    g_autofree char *output = run_bench(arguments, &status);

    ck_assert(json_parser_load_from_data(parser, output, -1, NULL));
    cases =
        json_object_get_array_member(json_node_get_object(json_parser_get_root(parser)), "cases");
    check_share(cases, "local-scale-asp-2x1", "local-scale-asp-1x1");
    check_share(cases, "local-scale-asp-2x2", "local-scale-asp-2x1");
    ck_assert(json_object_get_null_member(find_case(cases, "local-scale-asp-1x1"), "beside"));

    g_autofree char *one = run_bench(alone, &status); /* nothing to stand beside: no judgement */
    ck_assert(json_parser_load_from_data(parser, one, -1, NULL));
    cases =
        json_object_get_array_member(json_node_get_object(json_parser_get_root(parser)), "cases");
    ck_assert(json_object_get_null_member(find_case(cases, "local-scale-asp-2x1"), "beside"));
    ck_assert(json_object_get_null_member(find_case(cases, "local-scale-asp-2x1"), "goal"));
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

/* Cases that only pictures need. */
START_TEST(some_cases_run_only_if_they_are_named)
{
    const char *const named[] = { "-q", "-r", "1", "-c", "local-scale-bsp-2x3", NULL };
    const char *const listed[] = { "--list", NULL };
    int status;
    g_autofree char *output = run_bench(named, &status);

    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(output, "local-scale-bsp-2x3"));
    g_autofree char *list = run_bench(listed, &status);
    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(list, "local-scale-bsp-2x2"));
    ck_assert_ptr_null(strstr(list, "local-scale-bsp-2x3"));
}
END_TEST

START_TEST(cases_can_be_chosen_by_pattern_and_lines_fit_a_terminal)
{
    const char *const arguments[] = { "-q",
                                      "-r",
                                      "1",
                                      "-c",
                                      "local-*-1",
                                      "-c",
                                      "host-get-?",
                                      "-c",
                                      "local-scale-sparse-2x2",
                                      "-c",
                                      "local-scale-sparse-4x2",
                                      NULL };
    g_autofree char *output = NULL;
    g_auto(GStrv) lines = NULL;
    int status;

    output = run_bench(arguments, &status);
    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(output, "local-get-1"));
    ck_assert_ptr_nonnull(strstr(output, "local-add-1"));
    ck_assert_ptr_nonnull(strstr(output, "host-get-1"));
    ck_assert_ptr_nonnull(strstr(output, " of local-scale-sparse-2x2, the limit "));
    ck_assert_ptr_null(strstr(output, "local-get-range"));
    ck_assert_ptr_null(strstr(output, "host-get-10k"));
    lines = g_strsplit(output, "\n", -1);
    for (char **line = lines; *line != NULL; line++)
        ck_assert_msg(g_utf8_strlen(*line, -1) <= 100, "too long: %s", *line);
}
END_TEST

START_TEST(results_come_as_a_table_too)
{
    const char *const arguments[] = { "-q", "-r", "1", "-m", "-c", "local-get-1", NULL };
    g_autofree char *output = NULL;
    int status;

    output = run_bench(arguments, &status);
    ck_assert_int_eq(status, EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(output, "| case | Rubato | p99 | limit | ratio | goal | |\n|"));
    ck_assert_ptr_nonnull(strstr(output, "| `local-get-1` | "));
    ck_assert_ptr_nonnull(strstr(output, "| at most 5 times the limit | "));
}
END_TEST

static char *compare(const char *old_build, const char *percent, int *status)
{
    const char *const argv[] = { "bash",
                                 TEST_SOURCE_DIR "/tests/bench/compare",
                                 "--quick",
                                 "--rounds",
                                 "2",
                                 "--case",
                                 "local-*-1",
                                 "--allow",
                                 percent,
                                 old_build,
                                 TEST_BIN_DIR "/..",
                                 NULL };

    return run_program(argv, status);
}

START_TEST(two_builds_are_compared_case_by_case)
{
    g_autofree char *output = NULL;
    int status;

    output = compare(TEST_BIN_DIR "/..", "1000000", &status);
    ck_assert_msg(status == EXIT_SUCCESS, "%s", output);
    ck_assert_ptr_nonnull(strstr(output, "local-get-1 "));
    ck_assert_ptr_nonnull(strstr(output, "local-add-1 "));
    ck_assert_ptr_null(strstr(output, "slower than allowed"));
}
END_TEST

/* A report whose figures are a millionth of the real ones: everything compared with it is
 * slower. */
START_TEST(a_build_that_is_slower_than_allowed_fails_the_comparison)
{
    static const char fake[] = "#!/bin/sh\n"
                               "if [ \"$1\" = --list ]; then exec \"$REAL\" \"$@\"; fi\n"
                               "\"$REAL\" \"$@\" | sed '/\"median\" : [0-9]/s/: .*/: 1.0e-13,/'\n";
    g_autofree char *folder = g_dir_make_tmp("rubato-test-XXXXXX", NULL);
    g_autofree char *bin = g_build_filename(folder, "bin", NULL);
    g_autofree char *program = g_build_filename(bin, "rubato-bench", NULL);
    g_autofree char *output = NULL;
    int status;

    ck_assert_int_eq(g_mkdir(bin, 0700), 0);
    ck_assert(g_file_set_contents_full(program, fake, -1, G_FILE_SET_CONTENTS_NONE, 0700, NULL));
    g_setenv("REAL", TEST_BIN_DIR "/rubato-bench", TRUE);
    output = compare(folder, "10", &status);
    g_unlink(program);
    g_rmdir(bin);
    g_rmdir(folder);
    ck_assert_msg(status == 1, "status %d: %s", status, output);
    ck_assert_ptr_nonnull(strstr(output, "slower than allowed"));
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
    tcase_add_test(tcase, more_workers_stand_beside_fewer_of_the_same_run);
    tcase_add_test(tcase, one_case_can_be_chosen);
    tcase_add_test(tcase, some_cases_run_only_if_they_are_named);
    tcase_add_test(tcase, cases_can_be_chosen_by_pattern_and_lines_fit_a_terminal);
    tcase_add_test(tcase, results_come_as_a_table_too);
    tcase_add_test(tcase, two_builds_are_compared_case_by_case);
    tcase_add_test(tcase, a_build_that_is_slower_than_allowed_fails_the_comparison);
    tcase_add_test(tcase, an_unknown_case_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
