/* rubato-lr as a user runs it: on real rows, on rows whose true model is known, and on wrong
 * rows. test_app_lr_saved.c has models that it saves and loads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/factor_files.h"
#include "tests/support/runner.h"

/* ---- real rows ---- */

/* The results that rubato-lr must reach with its defaults. Liblinear's logistic regression has
 * .8499, .9022 and .3241 on a9a, .9673 and .0541 on w8a. */
static const struct {
    const char *train, *test;
    double accuracy, auc, logloss;
} sets[] = {
    { "a9a/a9a", "a9a/a9a.t", 0.8495, 0.901, 0.326 },
    { "w8a/w8a.train.svm", "w8a/w8a.test.svm", 0.9825, 0.965, 0.057 },
};

/* Other models may be worse than bsp by so much, because the order of their Adds differs from run
 * to run; all runs of bsp are the same. */
#define ACCURACY_NOISE 0.002
#define AUC_NOISE 0.001
#define LOGLOSS_NOISE 0.002

/* staleness, epochs: NULL for the default. */
static JsonNode *train_on(int set, Place place, const char *model, const char *staleness,
                          const char *epochs)
{
    g_autofree char *train = data_path(sets[set].train);
    g_autofree char *test = data_path(sets[set].test);
    const char *arguments[11] = { "--train", train, "--test", test, "--model", model };
    size_t n = 6;

    if (staleness != NULL) {
        arguments[n++] = "--staleness";
        arguments[n++] = staleness;
    }
    if (epochs != NULL) {
        arguments[n++] = "--epochs";
        arguments[n++] = epochs;
    }
    return run_for_card(place, "rubato-lr", arguments);
}

START_TEST(lr_is_as_good_as_a_specialist)
{
    g_autoptr(JsonNode) card = train_on(_i, PLACE_ONE_PROCESS, "bsp", NULL, NULL);

    ck_assert_double_ge(metric(card, "test_accuracy"), sets[_i].accuracy);
    ck_assert_double_ge(metric(card, "test_auc"), sets[_i].auc);
    ck_assert_double_le(metric(card, "test_logloss"), sets[_i].logloss);
    ck_assert_double_le(metric(card, "train_loss"), sets[_i].logloss + 0.02);
    ck_assert_double_gt(metric(card, "weights_norm"), 0);
    ck_assert_double_ge(metric(card, "nonzero_weights"), 1);
}
END_TEST

static const struct {
    const char *model, *staleness;
} models[] = {
    { "bsp", NULL }, { "asp", NULL },       { "ssp", "0" },        { "ssp", "1" },
    { "ssp", "4" },  { "sparse_ssp", "0" }, { "sparse_ssp", "1" }, { "sparse_ssp", "4" },
};

/* All workers of all nodes have reported, and none has read rows that were staler than the model
 * allows. */
static void check_waits(JsonNode *card, const char *model)
{
    JsonObject *members = json_node_get_object(card);

    ck_assert_uint_eq(json_array_get_length(json_object_get_array_member(members, "waits")),
                      (guint)number(card, "workers"));
    ck_assert_uint_gt(
        json_array_get_length(json_object_get_array_member(members, "staleness_seen")), 0);
    if (strcmp(model, "asp") != 0)
        ck_assert_int_le(number(card, "staleness_most"),
                         number(card, "staleness") + number(card, "speculation"));
}

/* Slow builds test some models with eight epochs, by which most is learned, each of them in one of
 * the two places. */
START_TEST(lr_is_as_good_under_every_model)
{
    const Place place = (Place)(_i % 2);
    const char *staleness = models[_i / 2].staleness;

    if (is_slow() && (g_strcmp0(staleness, "1") == 0 || (int)place != _i / 2 % 2))
        return;
    g_autoptr(JsonNode) card =
        train_on(0, place, models[_i / 2].model, staleness, is_slow() ? "8" : NULL);
    ck_assert_double_ge(metric(card, "test_accuracy"), sets[0].accuracy - ACCURACY_NOISE);
    ck_assert_double_ge(metric(card, "test_auc"), sets[0].auc - AUC_NOISE);
    ck_assert_double_le(metric(card, "test_logloss"), sets[0].logloss + LOGLOSS_NOISE);
    ck_assert_int_eq(number(card, "nodes"), place == PLACE_TWO_NODES ? 2 : 1);
    ck_assert_int_eq(number(card, "workers"), 4);
    check_waits(card, models[_i / 2].model);
}
END_TEST

/* ---- made-up rows, which every machine has ---- */

#define N_TRAIN 8000
#define N_TEST 4000

/* The AUC may be lower than the true model's by at most this. */
#define SHORTFALL 0.01

static const FactorRows linear = {
    .n_fields = 8, .n_values = 4, .n_factors = 1, .linear = 2, .seed = 1
};

static const FactorRows ratings = {
    .n_fields = 4, .n_values = 20, .n_factors = 1, .ratings = true, .linear = 1, .seed = 1
};

typedef struct {
    char *dir;
    FactorFiles files;
} Rows;

static void write_rows(Rows *rows, const FactorRows *spec)
{
    rows->dir = make_folder();
    ck_assert(factor_files_write(&rows->files, spec, rows->dir, "rows.svm", N_TRAIN, N_TEST));
}

static void remove_rows(Rows *rows)
{
    remove_folder(rows->dir);
    g_free(rows->dir);
    factor_files_clear(&rows->files);
}

/* Those of every rule and of both losses for labels, at the rate that the rule has by itself. */
static const char *const ways[][4] = {
    { "--rule", "adagrad" }, { "--rule", "adam" },  { "--rule", "ftrl" },
    { "--rule", "sgd" },     { "--loss", "hinge" }, { "--rule", "ftrl", "--l1", "1" },
};

START_TEST(lr_learns_in_every_way)
{
    Rows rows;

    write_rows(&rows, &linear);
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_ONE_PROCESS, "rubato-lr",
        (const char *const[]){ "--train", rows.files.train, "--test", rows.files.test, ways[_i][0],
                               ways[_i][1], ways[_i][2], ways[_i][3], NULL });
    ck_assert_msg(metric(card, "test_auc") >= rows.files.true_auc - SHORTFALL,
                  "%s %s: AUC %g of %g", ways[_i][0], ways[_i][1], metric(card, "test_auc"),
                  rows.files.true_auc);
    remove_rows(&rows);
}
END_TEST

/* The noise of the ratings is 0.1. */
START_TEST(lr_predicts_ratings)
{
    Rows rows;

    write_rows(&rows, &ratings);
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-lr",
                     (const char *const[]){ "--train", rows.files.train, "--test", rows.files.test,
                                            "--loss", "squared", NULL });
    ck_assert_double_le(metric(card, "test_rmse"), 0.11);
    remove_rows(&rows);
}
END_TEST

#define N_RATED 20

/* The rating is what a user adds, less what an item of the same number adds. So if users and items
 * shared weights, nothing could be learned: the RMSE would stay above 8. */
START_TEST(lr_learns_users_and_items_of_the_same_numbers)
{
    g_autofree char *dir = make_folder();
    g_autofree char *path = g_build_filename(dir, "all.ratings", NULL);
    g_autoptr(GString) text = g_string_new(NULL);

    for (int user = 0; user < N_RATED; user++)
        for (int item = 0; item < N_RATED; item++)
            g_string_append_printf(text, "%d %d %d\n", user, item, user - item);
    ck_assert(g_file_set_contents(path, text->str, -1, NULL));
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_ONE_PROCESS, "rubato-lr",
        (const char *const[]){ "--train", path, "--test", path, "--loss", "squared", "--epochs",
                               "100", "--batch-size", "100", "--learning-rate", "2", NULL });
    ck_assert_double_le(metric(card, "test_rmse"), 0.1);
    remove_folder(dir);
}
END_TEST

/* Under bsp the floats are the same wherever servers and workers are. */
START_TEST(lr_under_bsp_comes_out_the_same_everywhere)
{
    Rows rows;

    write_rows(&rows, &linear);
    const char *const arguments[] = { "--train",
                                      rows.files.train,
                                      "--test",
                                      rows.files.test,
                                      "--epochs",
                                      "2",
                                      "--batch-size",
                                      "256",
                                      NULL };
    g_autoptr(JsonNode) one = run_for_card(PLACE_ONE_PROCESS, "rubato-lr", arguments);
    g_autoptr(JsonNode) two = run_for_card(PLACE_TWO_NODES, "rubato-lr", arguments);
    ck_assert_double_eq(metric(one, "test_logloss"), metric(two, "test_logloss"));
    remove_rows(&rows);
}
END_TEST

/* With a very large penalty, only the bias is left of a row's score: the share of positives. */
START_TEST(lr_with_a_great_penalty_has_a_bias_alone)
{
    static const char *const penalties[][4] = {
        { "--rule", "ftrl", "--l1", "1000" },
        { "--rule", "adagrad", "--l2", "1000" },
    };
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", "1 1:1\n1 2:1\n-1 3:1\n1 1:1\n");
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    g_autofree char *text = NULL;

    Outcome outcome =
        run_program(PLACE_ONE_PROCESS, "rubato-lr",
                    (const char *const[]){ "--train", rows, "--epochs", "100", penalties[_i][0],
                                           penalties[_i][1], penalties[_i][2], penalties[_i][3],
                                           "--learning-rate", "0.1", "--predict", rows, "--output",
                                           output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 5);
    const double share = g_ascii_strtod(lines[0], NULL);
    ck_assert_double_eq_tol(share, 0.75, 0.15);
    for (size_t i = 1; i < 4; i++)
        ck_assert_double_eq_tol(g_ascii_strtod(lines[i], NULL), share, 0.01);
    remove_folder(dir);
}
END_TEST

/* Ridge regression of one weight, whose key one row of four has: 2 / (1 + 4 × 0.25) = 1. If rows
 * without the key had no part in the penalty, it would be 1.6. */
START_TEST(lr_penalises_all_weights_in_all_rows)
{
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", "2 1:1\n0\n0\n0\n");
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    g_autofree char *text = NULL;

    Outcome outcome = run_program(
        PLACE_ONE_PROCESS, "rubato-lr",
        (const char *const[]){ "--train", rows, "--loss", "squared", "--no-bias", "--rule", "sgd",
                               "--learning-rate", "1", "--l2", "0.25", "--epochs", "100",
                               "--predict", rows, "--output", output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    ck_assert_double_eq_tol(g_ascii_strtod(text, NULL), 1, 1e-3);
    remove_folder(dir);
}
END_TEST

/* With softmax the usual penalty is 1 / rows, and a step takes 128 of them. */
START_TEST(lr_penalises_classes_unless_told_not_to)
{
    static const char *const flags[][2] = { { "--seed=1", "--seed=1" },
                                            { "--l2=0.005", "--batch-size=128" },
                                            { "--l2=0", "--batch-size=128" },
                                            { "--l2=0.005", "--batch-size=2048" } };
    g_autofree char *dir = make_folder();
    g_autoptr(GString) text = g_string_new(NULL);
    double norms[G_N_ELEMENTS(flags)];

    for (int i = 0; i < 200; i++)
        g_string_append_printf(text, "%d %d:1 %d:1\n", i % 3, 1 + i % 3, 10 + i % 7);
    g_autofree char *rows = write_text(dir, "rows", text->str);
    for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
        g_autoptr(JsonNode) card = run_for_card(
            PLACE_ONE_PROCESS, "rubato-lr",
            (const char *const[]){ "--train", rows, "--loss", "softmax", "--epochs", "2",
                                   "--workers=1", flags[i][0], flags[i][1], NULL });
        norms[i] = metric(card, "weights_norm");
    }
    ck_assert_double_eq(norms[0], norms[1]);
    ck_assert_double_gt(norms[2], norms[0] + 1e-6);
    ck_assert_double_gt(fabs(norms[3] - norms[0]), 1e-6);
    remove_folder(dir);
}
END_TEST

/* ---- validation ---- */

/* A part of the rows is measured on, and not trained on; the same part on every number of nodes. */
START_TEST(lr_validates_with_a_part_of_the_rows)
{
    g_autofree char *dir = make_folder();
    g_autoptr(GString) text = g_string_new(NULL);

    for (int i = 0; i < 400; i++)
        g_string_append_printf(text, "%d %d:1 %d:1\n", i % 3 == 0, 1 + i % 3, 10 + i % 7);
    g_autofree char *rows = write_text(dir, "rows", text->str);
    double losses[2];

    for (size_t i = 0; i < 2; i++) {
        const char *const arguments[] = { "--train",      rows,       "--validate",
                                          ".25",          "--epochs", "2",
                                          "--batch-size", "1000",     NULL };
        g_autoptr(JsonNode) card =
            run_for_card(i == 0 ? PLACE_ONE_PROCESS : PLACE_TWO_NODES, "rubato-lr", arguments);
        JsonObject *validation =
            json_object_get_object_member(json_node_get_object(card), "validation");
        const int64_t n = number(card, "samples");

        ck_assert_ptr_nonnull(validation);
        losses[i] =
            json_array_get_double_element(json_object_get_array_member(validation, "loss"), 1);
        ck_assert_msg(n > 2 * 260 && n < 2 * 340 && n % 2 == 0, "%" G_GINT64_FORMAT, n);
    }
    ck_assert_double_eq_tol(losses[0], losses[1], 1e-5);
    remove_folder(dir);
}
END_TEST

/* Of labels that come once some are in the part alone. They are classes, too, on every node. */
START_TEST(lr_validates_with_classes_that_are_not_trained_on)
{
    g_autofree char *dir = make_folder();
    g_autoptr(GString) text = g_string_new(NULL);

    for (int i = 0; i < 100; i++)
        g_string_append_printf(text, "%d %d:1\n", i < 60 ? i % 3 : i, 1 + i % 3);
    g_autofree char *rows = write_text(dir, "rows", text->str);
    g_autoptr(JsonNode) card =
        run_for_card((Place)_i, "rubato-lr",
                     (const char *const[]){ "--train", rows, "--validate", ".25", "--loss",
                                            "softmax", "--epochs", "2", NULL });

    ck_assert(json_object_has_member(json_node_get_object(card), "validation"));
    remove_folder(dir);
}
END_TEST

/* ---- training that diverges ---- */

#define UNSCALED_ROWS "1 1:900 2:-40\n-1 1:1000 2:70\n3 1:2000 3:1\n0 2:500 3:-1\n"

START_TEST(lr_that_diverges_ends_with_advice_and_saves_nothing)
{
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows", UNSCALED_ROWS);
    Outcome outcome =
        run_program((Place)_i, "rubato-lr",
                    (const char *const[]){ "--train", rows, "--loss", "squared", "--rule", "sgd",
                                           "--learning-rate", "10", "--save", model, NULL });

    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "training diverges: the loss is ") != NULL &&
                      strstr(outcome.err, "Take a smaller --learning-rate (it was 10)") != NULL,
                  "%.4000s", outcome.err);
    ck_assert(!g_file_test(model, G_FILE_TEST_EXISTS));
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

START_TEST(lr_keeps_going_where_asked_and_says_that_it_diverges)
{
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", UNSCALED_ROWS);
    Outcome outcome =
        run_program((Place)_i, "rubato-lr",
                    (const char *const[]){ "--train", rows, "--loss", "squared", "--rule", "sgd",
                                           "--learning-rate", "10", "--keep-going", NULL });
    const char *said = strstr(outcome.err, "training diverges: the loss is ");

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    ck_assert_msg(said != NULL && strstr(said + 1, "training diverges") == NULL, "%.4000s",
                  outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

/* ---- threads that are bound ---- */

START_TEST(lr_tells_which_threads_it_has_bound)
{
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", "1 1:1\n-1 2:1\n");
    Outcome outcome = run_program((Place)_i, "rubato-lr",
                                  (const char *const[]){ "--train", rows, "--bind-cores", NULL });

    if (outcome.status == 0)
        ck_assert_msg(strstr(outcome.out, "  bound          server 0 on processor") != NULL,
                      "%.4000s", outcome.out);
    else /* it is refused on a machine that cannot */
        ck_assert_msg(strstr(outcome.err, "bind_cores: ") != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

/* ---- what is wrong ---- */

#define FEW_ROWS "1 1:1 7:1\n-1 2:1 7:1\n1 1:1 9:2\n-1 3:4\n"

static const BadCall bad_calls[] = {
    { "", { "--rule", "best" }, 2, "--rule: expected one of adagrad, adam, ftrl, sgd" },
    { "", { "--plugin", "/no/such.so" }, 2, "--plugin: cannot load the plug-in /no/such.so" },
    { "", { "--rule", "add" }, 2, "--rule: expected one of adagrad" },
    { "", { "--loss", "none" }, 2, "--loss: expected one of logistic, hinge, squared" },
    { "", { "--l1=-1" }, 2, "--l1: expected a number from 0, found -1" },
    { "", { "--l2", "inf" }, 2, "--l2: expected a number from 0, found inf" },
    { "1 1:1\n1 2:1\n",
      { NULL },
      1,
      "expected two labels, such as -1 and 1; all rows have label 1" },
    { "1 1:1\n2 2:1\n3 2:1\n",
      { NULL },
      1,
      "/train:2: expected one of two labels, 1 or 3, found 2" },
    { FEW_ROWS, { "--patience", "2" }, 2, "--patience: needs --validate FILE" },
    { FEW_ROWS, { "--validate", "1" }, 2, "--validate: expected a file, or a fraction" },
    { FEW_ROWS, { "--validate", "0.999" }, 1, "found none that --validate 0.999 leaves" },
    { FEW_ROWS, { "--validate", "/none" }, 1, "/none: cannot be opened" },
    { "1 1:1\n-1 2:x\n", { NULL }, 1, "/train:2:6: expected a finite number" },
    { "", { NULL }, 1, "/train: expected rows, found none" },
    { NULL, { NULL }, 1, "/train: " },
};

START_TEST(lr_refuses_what_is_wrong)
{
    check_bad_call("rubato-lr", &bad_calls[_i]);
}
END_TEST

static const struct {
    const char *text, *message;
} bad_tests[] = {
    { "", "--test: there are no rows to test on" },
    { "1 1:1\n7 1:1\n", "/test:2: expected one of two labels, -1 or 1, found 7" },
};

START_TEST(lr_refuses_to_test_on_what_is_wrong)
{
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", FEW_ROWS);
    g_autofree char *test = write_text(dir, "test", bad_tests[_i].text);
    Outcome outcome = run_program(PLACE_ONE_PROCESS, "rubato-lr",
                                  (const char *const[]){ "--train", rows, "--test", test, NULL });

    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, bad_tests[_i].message) != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

static Suite *lr_suite(void)
{
    Suite *suite = suite_create("app_lr");
    TCase *tcase = tcase_create("lr");

    tcase_set_timeout(tcase, 60);
    if (has_data(sets[0].train) && has_data(sets[1].train)) {
        if (!is_slow())
            tcase_add_loop_test(tcase, lr_is_as_good_as_a_specialist, 0, (int)G_N_ELEMENTS(sets));
        tcase_add_loop_test(tcase, lr_is_as_good_under_every_model, 0,
                            (int)G_N_ELEMENTS(models) * 2);
    } else {
        g_print(
            "skipped: cases on a9a and w8a; put the folder that has them into RUBATO_DATA_DIR\n");
    }
    tcase_add_loop_test(tcase, lr_learns_in_every_way, 0, (int)G_N_ELEMENTS(ways));
    tcase_add_test(tcase, lr_predicts_ratings);
    tcase_add_test(tcase, lr_learns_users_and_items_of_the_same_numbers);
    tcase_add_test(tcase, lr_under_bsp_comes_out_the_same_everywhere);
    tcase_add_loop_test(tcase, lr_with_a_great_penalty_has_a_bias_alone, 0, 2);
    tcase_add_test(tcase, lr_penalises_all_weights_in_all_rows);
    tcase_add_test(tcase, lr_penalises_classes_unless_told_not_to);
    tcase_add_test(tcase, lr_validates_with_a_part_of_the_rows);
    tcase_add_loop_test(tcase, lr_validates_with_classes_that_are_not_trained_on, 0, 2);
    tcase_add_loop_test(tcase, lr_that_diverges_ends_with_advice_and_saves_nothing, 0, 2);
    tcase_add_loop_test(tcase, lr_keeps_going_where_asked_and_says_that_it_diverges, 0, 2);
    tcase_add_loop_test(tcase, lr_tells_which_threads_it_has_bound, 0, 2);
    tcase_add_loop_test(tcase, lr_refuses_what_is_wrong, 0, (int)G_N_ELEMENTS(bad_calls));
    tcase_add_loop_test(tcase, lr_refuses_to_test_on_what_is_wrong, 0,
                        (int)G_N_ELEMENTS(bad_tests));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(lr_suite());
}
