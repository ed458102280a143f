/* rubato-gbdt as a user runs it: on rows that no linear model could learn, on real ones, and on
 * wrong ones. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

#define N_TRAIN 2000
#define N_TEST 500

/* Rows in the unit square; the label depends on the quarter. Every tenth value is missing, and a
 * missing x stands for one above 0.5. */
typedef enum { LABELS_TWO, LABELS_CLASSES, LABELS_NUMBERS } Labels;

static void write_rows(const char *path, GRand *random, Labels labels, int n)
{
    GString *text = g_string_new(NULL);

    for (int i = 0; i < n; i++) {
        const bool missing = i % 10 == 0;
        const double x = missing ? 1 : g_rand_double(random), y = g_rand_double(random);
        const int quarter = 2 * (x > 0.5) + (y > 0.5);
        static const char *const words[][4] = { { "1", "0", "0", "1" },
                                                { "3", "5", "8", "5" },
                                                { "-2.5", "10", "0", "4" } };
        char texts[2][G_ASCII_DTOSTR_BUF_SIZE];

        g_ascii_formatd(texts[0], sizeof texts[0], "%.4f", x);
        g_ascii_formatd(texts[1], sizeof texts[1], "%.4f", y);
        g_string_append_printf(text, "%s,%s,%s,7\n", words[labels][quarter],
                               missing ? "" : texts[0], texts[1]);
    }
    ck_assert(g_file_set_contents(path, text->str, -1, NULL));
    g_string_free(text, TRUE);
}

static void files_make(ProgramFiles *files, Labels labels)
{
    GRand *random = g_rand_new_with_seed(3);

    program_files_make(files, "csv");
    write_rows(files->train, random, labels, N_TRAIN);
    write_rows(files->test, random, labels, N_TEST);
    g_rand_free(random);
}

static const struct {
    Labels labels;
    const char *loss, *metric;
    double least, most;
} losses[] = {
    { LABELS_TWO, "logistic", "test_accuracy", 0.99, 1 },
    { LABELS_CLASSES, "softmax", "test_accuracy", 0.99, 1 },
    { LABELS_NUMBERS, "squared", "test_rmse", 0, 0.5 },
};

static JsonNode *learn(Place place, const ProgramFiles *files, const char *loss, const char *extra,
                       const char *more)
{
    return run_for_card(place, "rubato-gbdt",
                        (const char *const[]){ "--train", files->train, "--test", files->test,
                                               "--loss", loss, "--epochs", "20", "--max-depth", "3",
                                               "--learning-rate", "0.5", extra, more, NULL });
}

/* Trained on two nodes, saved, loaded in one process. */
START_TEST(gbdt_learns_every_loss)
{
    const char *name = losses[_i].metric;
    ProgramFiles files;
    g_autofree char *text = NULL;

    files_make(&files, losses[_i].labels);
    g_autoptr(JsonNode) card =
        learn(PLACE_TWO_NODES, &files, losses[_i].loss, "--save", files.model);
    ck_assert_double_ge(metric(card, name), losses[_i].least);
    ck_assert_double_le(metric(card, name), losses[_i].most);
    g_autoptr(JsonNode) tested = run_for_card(
        PLACE_ONE_PROCESS, "rubato-gbdt",
        (const char *const[]){ "--load", files.model, "--test", files.test, "--predict", files.test,
                               "--output", files.output, NULL });
    ck_assert_double_eq(metric(tested, name), metric(card, name));
    ck_assert(g_file_get_contents(files.output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), N_TEST + 1);
    program_files_remove(&files);
}
END_TEST

static double loss_with(Place place, const ProgramFiles *files, const char *extra, const char *more)
{
    g_autoptr(JsonNode) card = learn(place, files, "logistic", extra, more);

    return metric(card, "test_logloss");
}

/* Sums of integers do not depend on their order: so neither on how many add to them. */
START_TEST(gbdt_comes_out_the_same_for_any_number_of_workers)
{
    ProgramFiles files;

    files_make(&files, LABELS_TWO);
    const double loss = loss_with(PLACE_TWO_NODES, &files, NULL, NULL);
    ck_assert_double_eq(loss_with(PLACE_ONE_PROCESS, &files, NULL, NULL), loss);
    ck_assert_double_eq(loss_with(PLACE_ONE_PROCESS, &files, "--workers", "1"), loss);
    ck_assert_double_eq(loss_with(PLACE_ONE_PROCESS, &files, "--checkpoint", files.model), loss);
    program_files_remove(&files);
}
END_TEST

/* A model of ten rounds, trained ten rounds more, is one of twenty; so is one after a snapshot. */
START_TEST(gbdt_goes_on_from_a_model_and_from_a_snapshot)
{
    const bool resumes = _i == 1;
    ProgramFiles files;

    files_make(&files, LABELS_TWO);
    const double loss = loss_with(PLACE_ONE_PROCESS, &files, NULL, NULL);
    const char *arguments[] = { "--train",
                                files.train,
                                "--test",
                                files.test,
                                "--max-depth",
                                "3",
                                "--learning-rate",
                                "0.5",
                                resumes ? "--checkpoint" : "--save",
                                files.model,
                                "--epochs",
                                "10",
                                NULL,
                                NULL };
    g_autoptr(JsonNode) half = run_for_card(PLACE_TWO_NODES, "rubato-gbdt", arguments);
    ck_assert_double_gt(metric(half, "test_logloss"), loss);
    if (resumes) {
        arguments[11] = "20";
        arguments[12] = "--resume";
    } else {
        arguments[8] = "--load";
    }
    g_autoptr(JsonNode) whole = run_for_card(PLACE_TWO_NODES, "rubato-gbdt", arguments);
    ck_assert_double_eq_tol(metric(whole, "test_logloss"), loss, 1e-6);
    program_files_remove(&files);
}
END_TEST

/* Labels by chance: each further tree is worse for other rows. The trees after the best round say
 * nothing in the saved model. */
START_TEST(gbdt_keeps_the_round_that_validation_likes_best)
{
    ProgramFiles files;
    GString *text = g_string_new(NULL);
    GRand *random = g_rand_new_with_seed(1);

    files_make(&files, LABELS_TWO);
    for (int i = 0; i < 400; i++)
        g_string_append_printf(text, "%d,%d,%d,7\n", g_rand_boolean(random),
                               g_rand_int_range(random, 0, 100), g_rand_int_range(random, 0, 100));
    ck_assert(g_file_set_contents(files.train, text->str, -1, NULL));
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-gbdt",
                     (const char *const[]){ "--train", files.train, "--validate", files.test,
                                            "--test", files.test, "--save", files.model, NULL });
    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "patience");
    g_autoptr(JsonNode) tested =
        run_for_card(PLACE_ONE_PROCESS, "rubato-gbdt",
                     (const char *const[]){ "--load", files.model, "--test", files.test, NULL });
    ck_assert_double_eq(metric(tested, "test_logloss"), metric(card, "test_logloss"));
    g_string_free(text, TRUE);
    g_rand_free(random);
    program_files_remove(&files);
}
END_TEST

/* The validation loss after a round, to whose scores the round adds its own trees, is that of all
 * trees together: those of a loaded model, which are deeper, too. */
START_TEST(gbdt_validates_with_all_trees)
{
    ProgramFiles files;

    files_make(&files, LABELS_CLASSES);
    const char *const deep[] = { "--train",     files.train, "--loss", "softmax",   "--epochs", "2",
                                 "--max-depth", "5",         "--save", files.model, NULL };
    const char *const flat[] = { "--train",    files.train, "--load",     files.model,   "--loss",
                                 "softmax",    "--epochs",  "4",          "--max-depth", "2",
                                 "--validate", files.test,  "--patience", "0",           "--test",
                                 files.test,   NULL };
    g_autoptr(JsonNode) before = run_for_card(PLACE_ONE_PROCESS, "rubato-gbdt", deep);
    ck_assert_ptr_nonnull(before);
    for (int place = 0; place < 2; place++) {
        g_autoptr(JsonNode) card = run_for_card((Place)place, "rubato-gbdt", flat);
        JsonObject *validation =
            json_object_get_object_member(json_node_get_object(card), "validation");
        const int64_t best = json_object_get_int_member(validation, "best_epoch");
        JsonArray *found = json_object_get_array_member(validation, "loss");

        ck_assert_int_eq(best, 4);
        ck_assert_double_eq_tol(json_array_get_double_element(found, 3),
                                metric(card, "test_logloss"), 1e-9);
    }
    program_files_remove(&files);
}
END_TEST

/* Xgboost has .9271 and .9995 with as many trees. */
static const struct {
    const char *train, *test, *loss, *metric;
    double least;
} sets[] = {
    { "adult/adult.train.csv", "adult/adult.test.csv", "logistic", "test_auc", 0.925 },
    { "shuttle/shuttle.train.csv", "shuttle/shuttle.test.csv", "softmax", "test_accuracy", 0.999 },
};

START_TEST(gbdt_is_as_good_as_a_specialist)
{
    g_autofree char *train = data_path(sets[_i].train);
    g_autofree char *test = data_path(sets[_i].test);
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_ONE_PROCESS, "rubato-gbdt",
        (const char *const[]){ "--train", train, "--test", test, "--loss", sets[_i].loss, NULL });

    ck_assert_double_ge(metric(card, sets[_i].metric), sets[_i].least);
}
END_TEST

static const BadCall bad_calls[] = {
    { NULL, { NULL }, 1, "cannot be opened" },
    { "1 1:1\n0 1:2\n", { "--loss", "hinge" }, 2, "--loss: expected logistic, squared or softmax" },
    { "1 1:1\n0 1:2\n", { "--model", "asp" }, 2, "--model: trees need the histograms of all" },
    { "1 1:1\n0 1:2\n", { "--max-depth", "13" }, 2, "--max-depth: expected a number from 1 to 12" },
    { "1 1:1\n0 1:2\n", { "--bins", "2" }, 2, "--bins: expected a number from 3 to 256" },
    { "1 1:1\n0 1:2\n", { "--batch-size", "2" }, 2, "--batch-size: rubato-gbdt has no batches" },
    { "1 1:1\n0 1:2\n", { "--standardize" }, 2, "--standardize: has no effect on trees" },
    { "1 1:1\n0 1:2\n2 1:1\n", { NULL }, 1, "expected one of two labels" },
    { "1 99999999:1\n0 1:2\n", { NULL }, 1, "keys go up to 99999999" },
};

START_TEST(gbdt_refuses_what_is_wrong)
{
    check_bad_call("rubato-gbdt", &bad_calls[_i]);
}
END_TEST

static Suite *gbdt_suite(void)
{
    Suite *suite = suite_create("rubato-gbdt");
    TCase *tcase = tcase_create("rubato-gbdt");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, gbdt_learns_every_loss, 0, (int)G_N_ELEMENTS(losses));
    tcase_add_test(tcase, gbdt_comes_out_the_same_for_any_number_of_workers);
    tcase_add_loop_test(tcase, gbdt_goes_on_from_a_model_and_from_a_snapshot, 0, 2);
    tcase_add_test(tcase, gbdt_validates_with_all_trees);
    tcase_add_test(tcase, gbdt_keeps_the_round_that_validation_likes_best);
    if (has_data(sets[0].train) && has_data(sets[1].train) && !is_slow())
        tcase_add_loop_test(tcase, gbdt_is_as_good_as_a_specialist, 0, (int)G_N_ELEMENTS(sets));
    else if (!is_slow())
        g_print("skipped: cases on adult and shuttle; put the folder that has them into "
                "RUBATO_DATA_DIR\n");
    tcase_add_loop_test(tcase, gbdt_refuses_what_is_wrong, 0, (int)G_N_ELEMENTS(bad_calls));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(gbdt_suite());
}
