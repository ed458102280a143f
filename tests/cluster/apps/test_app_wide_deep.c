/* rubato-wide-deep as a user runs it: on clicks that neither of its parts learns alone, in one
 * process and on two nodes, on rows fewer than workers, and on wrong ones. */
#include <glib/gstdio.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/click_rows.h"
#include "tests/support/runner.h"

enum { N_USERS = 20, N_PLACES = 20, SEED = 1, N_TRAIN = 6000, N_TEST = 2000, N_EPOCHS = 8 };

static ProgramFiles files;

static void set_up(void)
{
    program_files_make(&files, "csv");
    click_rows_write(files.train, N_USERS, N_PLACES, SEED, 0, N_TRAIN);
    click_rows_write(files.test, N_USERS, N_PLACES, SEED, N_TRAIN, N_TEST);
}

static void tear_down(void)
{
    program_files_remove(&files);
}

#define TRAIN                                                                                    \
    "--train", files.train, "--categorical", CLICK_COLUMNS, "--standardize", "--batch-size=100", \
        "--learning-rate=0.03"
#define LEARN TRAIN, "--test", files.test, "--epochs=8"
#define WIDE "--cross", CLICK_CROSS
#define DEEP "--embedding=2", "--hidden=8"

/* ---- learning ---- */

static double auc_of(Place place, const char *const *arguments)
{
    g_autoptr(JsonNode) card = run_for_card(place, "rubato-wide-deep", arguments);

    ck_assert_int_eq(number(card, "samples"), (int64_t)N_EPOCHS * N_TRAIN);
    return metric(card, "test_auc");
}

START_TEST(wide_deep_learns_what_neither_part_learns_alone)
{
    const double both = auc_of(PLACE_ONE_PROCESS, (const char *const[]){ LEARN, WIDE, DEEP, NULL });
    const double wide =
        auc_of(PLACE_ONE_PROCESS, (const char *const[]){ LEARN, WIDE, "--only=wide", NULL });
    const double deep =
        auc_of(PLACE_ONE_PROCESS, (const char *const[]){ LEARN, DEEP, "--only=deep", NULL });

    ck_assert_double_ge(wide, 0.7);
    ck_assert_double_ge(deep, 0.7);
    ck_assert_double_ge(both, wide + 0.06);
    ck_assert_double_ge(both, deep + 0.06);
}
END_TEST

/* As well as in one process. */
START_TEST(wide_deep_learns_on_two_nodes)
{
    ck_assert_double_ge(auc_of(PLACE_TWO_NODES, (const char *const[]){ LEARN, WIDE, DEEP, NULL }),
                        0.83);
}
END_TEST

static const struct {
    const char *only;
    const char *arrays[5]; /* that a model of this part has */
} parts[] = {
    { "--only=both", { "wide", "embeddings", "layer-1", "layer-2" } },
    { "--only=wide", { "wide" } },
    { "--only=deep", { "embeddings", "layer-1", "layer-2" } },
};

static double number_of_line(const char *line)
{
    char *end = NULL;
    const double value = g_ascii_strtod(line, &end);

    ck_assert_msg(end != line && *end == '\0', "%s", line);
    return value;
}

/* The model knows its parts, pairs and sizes. */
START_TEST(wide_deep_is_saved_loaded_and_used)
{
    const bool is_wide = strcmp(parts[_i].only, "--only=wide") == 0;
    const bool is_deep = strcmp(parts[_i].only, "--only=deep") == 0;
    g_autoptr(JsonNode) trained = run_for_card(
        PLACE_ONE_PROCESS, "rubato-wide-deep",
        (const char *const[]){ TRAIN, "--test", files.test, "--epochs=2", "--save", files.model,
                               parts[_i].only, is_deep ? "--embedding=3" : "--cross",
                               is_deep ? "--hidden=5" : CLICK_CROSS,
                               is_wide || is_deep ? NULL : "--hidden=5", NULL });
    for (size_t i = 0; parts[_i].arrays[i] != NULL; i++) {
        g_autofree char *name = g_strconcat(parts[_i].arrays[i], ".npy", NULL);
        g_autofree char *path = g_build_filename(files.model, name, NULL);

        ck_assert_msg(g_file_test(path, G_FILE_TEST_EXISTS), "%s", path);
    }
    g_autoptr(JsonNode) tested = run_for_card(
        PLACE_TWO_NODES, "rubato-wide-deep",
        (const char *const[]){ "--load", files.model, "--test", files.test, "--predict", files.test,
                               "--output", files.output, NULL });
    ck_assert_double_eq_tol(metric(tested, "test_auc"), metric(trained, "test_auc"), 1e-6);

    g_autofree char *text = NULL;
    ck_assert(g_file_get_contents(files.output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), N_TEST + 1);
    for (size_t i = 0; i < N_TEST; i++)
        ck_assert_double_eq_tol(number_of_line(lines[i]), 0.5, 0.5);
}
END_TEST

START_TEST(wide_deep_keeps_the_epoch_that_validation_found_best)
{
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_TWO_NODES, "rubato-wide-deep",
                     (const char *const[]){ TRAIN, WIDE, DEEP, "--validate=0.2", "--epochs=6",
                                            "--test", files.test, NULL });
    JsonObject *const validation =
        json_object_get_object_member(json_node_get_object(card), "validation");

    ck_assert_ptr_nonnull(validation);
    ck_assert_int_ge(json_object_get_int_member(validation, "best_epoch"), 2);
    ck_assert_double_ge(metric(card, "test_auc"), 0.8);
}
END_TEST

/* ---- who has how many rows ---- */

/* Those without rows take part until the others have none, or the allreduce would never end. */
START_TEST(wide_deep_learns_rows_that_most_workers_have_none_of)
{
    ck_assert(g_file_set_contents(files.train, "1,a,7\n0,b,7\n1,a,7\n0,b,7\n0,b,7\n", -1, NULL));
    for (size_t i = 0; i < 2; i++) {
        g_autoptr(JsonNode) card =
            run_for_card(i == 0 ? PLACE_ONE_PROCESS : PLACE_TWO_NODES, "rubato-wide-deep",
                         (const char *const[]){ "--train", files.train, "--test", files.train,
                                                "--categorical=1", "--hidden=4", "--epochs=60",
                                                "--batch-size=4", "--learning-rate=0.1", NULL });

        ck_assert_int_eq(number(card, "samples"), 60 * 5);
        ck_assert_double_eq(metric(card, "test_accuracy"), 1);
    }
}
END_TEST

/* All workers stop in the same step: a worker alone would fail the others. */
START_TEST(wide_deep_stops_on_every_node_at_the_target_loss)
{
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_TWO_NODES, "rubato-wide-deep",
                     (const char *const[]){ TRAIN, WIDE, DEEP, "--epochs=100000",
                                            "--target-loss=0.55", "--straggler=0.01:5", NULL });

    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "target-loss");
    ck_assert_double_le(lowest_loss(card), 0.55);
}
END_TEST

/* ---- what is refused ---- */

#define GOOD "1 1:1\n-1 2:1\n"

static const BadCall bad_calls[] = {
    { GOOD, { "--only=half" }, 2, "--only: expected one of both, wide, deep" },
    { GOOD, { "--cross=1" }, 2, "--cross: expected up to 64 pairs of two different fields" },
    { GOOD, { "--cross=1:1" }, 2, "found \"1:1\"" },
    { GOOD, { "--cross=1:2,2:1" }, 2, "found \"1:2,2:1\"" },
    { GOOD, { "--cross=1:4096" }, 2, "fields below 4096" },
    { GOOD, { "--cross=0:1" }, 1, "--cross 0:1: the fields of the rows end with 0" },
    { GOOD, { "--embedding=257" }, 2, "--embedding: expected a number from 1 to 256" },
    { GOOD, { "--hidden=8,0" }, 2, "--hidden: expected the units" },
    { GOOD, { "--rule=ftrl" }, 2, "--rule: expected one of adam, momentum, sgd" },
    { GOOD, { "--model=ssp" }, 2, "--model ssp: has no effect on rubato-wide-deep" },
    { "1 1:1\n2 1:2\n3 1:1\n", { NULL }, 1, "found 2" },
    { "1 1:1\n-1 1:x\n", { NULL }, 1, "train:2:" },
};

START_TEST(wide_deep_refuses_bad_calls_and_bad_rows)
{
    check_bad_call("rubato-wide-deep", &bad_calls[_i]);
}
END_TEST

/* Its inputs are fields, so rows to test may not have others. */
START_TEST(wide_deep_refuses_fields_that_it_was_not_trained_on)
{
    g_autofree char *train = g_build_filename(files.dir, "a.ffm", NULL);
    g_autofree char *test = g_build_filename(files.dir, "b.ffm", NULL);

    ck_assert(g_file_set_contents(train, "1 0:1:1 1:2:1\n-1 0:3:1\n", -1, NULL));
    ck_assert(g_file_set_contents(test, "1 0:1:1\n-1 2:3:1\n", -1, NULL));
    Outcome outcome =
        run_program(PLACE_ONE_PROCESS, "rubato-wide-deep",
                    (const char *const[]){ "--train", train, "--test", test, "--epochs=1", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "a row has field 2: the rows to train on have fields from 0 "
                                      "to 1") != NULL,
                  "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

static Suite *wide_deep_suite(void)
{
    Suite *suite = suite_create("app_wide_deep");
    TCase *cases = tcase_create("wide_deep");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, wide_deep_learns_what_neither_part_learns_alone);
    tcase_add_test(cases, wide_deep_learns_on_two_nodes);
    tcase_add_loop_test(cases, wide_deep_is_saved_loaded_and_used, 0, (int)G_N_ELEMENTS(parts));
    tcase_add_test(cases, wide_deep_keeps_the_epoch_that_validation_found_best);
    tcase_add_test(cases, wide_deep_learns_rows_that_most_workers_have_none_of);
    tcase_add_test(cases, wide_deep_stops_on_every_node_at_the_target_loss);
    tcase_add_loop_test(cases, wide_deep_refuses_bad_calls_and_bad_rows, 0,
                        (int)G_N_ELEMENTS(bad_calls));
    tcase_add_test(cases, wide_deep_refuses_fields_that_it_was_not_trained_on);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return run_suite(wide_deep_suite());
}
