/* rubato-fm as a user runs it: on rows whose true model is known, on ratings, and on real rows. */
#include <math.h>
#include <rubato/mix.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/factor_files.h"
#include "tests/support/runner.h"

#define N_TRAIN 40000
#define N_TEST 10000

/* The AUC may be lower than the true model's by at most this. */
#define SHORTFALL 0.005

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

static const FactorRows plain_spec = {
    .n_fields = 8, .n_values = 8, .n_factors = 4, .linear = 0.5, .pairs = 2, .seed = 1
};

static const FactorRows field_aware_spec = {
    .n_fields = 6,
    .n_values = 4,
    .n_factors = 4,
    .field_aware = true,
    .linear = 0.5,
    .pairs = 2,
    .seed = 1,
};

static const FactorRows ratings_spec = { .n_fields = 4,
                                         .n_values = 20,
                                         .n_factors = 4,
                                         .ratings = true,
                                         .linear = 1,
                                         .pairs = 1,
                                         .seed = 1 };

static char *data_dir; /* of all files that are made before the first case */
static FactorFiles plain, field_aware, ratings;

START_TEST(fm_is_as_good_as_the_model_that_made_the_rows)
{
    const Place place = (Place)(_i % 2);
    const char *model = models[_i / 2];

    if (is_slow() && _i / 2 % 2 != _i % 2) /* each model in one place then */
        return;
    g_autoptr(JsonNode) card =
        run_for_card(place, "rubato-fm",
                     (const char *const[]){ "--train", plain.train, "--test", plain.test, "--model",
                                            model, "--epochs", "5", NULL });
    ck_assert_double_ge(metric(card, "test_auc"), plain.true_auc - SHORTFALL);
    ck_assert_int_eq(number(card, "nodes"), place == PLACE_TWO_NODES ? 2 : 1);
    ck_assert_int_eq(number(card, "workers"), 4);
}
END_TEST

/* The label is the sum of two digits, modulo 3: no linear term tells anything about it. */
static char *write_sums(void)
{
    char *path = g_build_filename(data_dir, "sums.svm", NULL);
    g_autoptr(GString) lines = g_string_new(NULL);

    for (int i = 0; i < 900; i++) {
        const int a = i % 3, b = i / 3 % 3;

        g_string_append_printf(lines, "%d %d:1 %d:1\n", 10 + (a + b) % 3, 1 + a, 11 + b);
    }
    ck_assert(g_file_set_contents(path, lines->str, (gssize)lines->len, NULL));
    return path;
}

START_TEST(fm_learns_classes_that_linear_terms_cannot_tell)
{
    static const char *const programs[] = { "rubato-fm", "rubato-lr" };
    g_autofree char *rows = write_sums();
    g_autofree char *model = g_build_filename(data_dir, "sums", NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(programs); i++) {
        g_autoptr(JsonNode) card = run_for_card(
            PLACE_TWO_NODES, programs[i],
            (const char *const[]){ "--train", rows, "--test", rows, "--loss", "softmax", "--epochs",
                                   "30", i == 0 ? "--save" : NULL, model, NULL });
        const double accuracy = metric(card, "test_accuracy");

        ck_assert_msg(i == 0 ? accuracy == 1 : accuracy < 0.5, "%s: %g", programs[i], accuracy);
    }
    /* classes and factors are the saved model's */
    g_autoptr(JsonNode) loaded =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--load", model, "--test", rows, NULL });
    ck_assert(metric(loaded, "test_accuracy") == 1);
}
END_TEST

static int64_t count_of(const JsonNode *card, const char *name)
{
    JsonObject *tables =
        json_object_get_object_member(json_node_get_object((JsonNode *)card), "tables");
    JsonObject *weights = json_object_get_object_member(tables, "weights");

    return json_object_get_int_member(weights, name);
}

/* The first two Adds to each of the six keys are left out. The card has the sums of all nodes. */
START_TEST(the_card_tells_what_was_forgotten)
{
    const Place place = (Place)_i;
    g_autofree char *rows = write_sums();

    g_autoptr(JsonNode) card = run_for_card(
        place, "rubato-fm",
        (const char *const[]){ "--train", rows, "--loss", "softmax", "--epochs", "9", "--max-mib",
                               "8", "--evict", "lfu", "--admit-count", "3", NULL });
    ck_assert_int_eq(count_of(card, "rows"), 6);
    ck_assert_int_eq(count_of(card, "admitted"), 6);
    ck_assert_int_eq(count_of(card, "refused"), 12);
    ck_assert_int_eq(count_of(card, "evicted"), 0);
    ck_assert_int_eq(count_of(card, "expired"), 0);
    ck_assert_int_gt(count_of(card, "bytes"), 1 << 20); /* where Adds are counted */
}
END_TEST

/* ---- a table that forgets, on many keys ---- */

static double weight_of(uint64_t key, double scale)
{
    return ((double)(rubato_mix64(key) >> 11) * 0x1p-53 - .5) * scale;
}

/* One of n, of which the k-th comes 1/k as often as the first. */
static unsigned draw(GRand *random, unsigned n)
{
    return (unsigned)exp(g_rand_double(random) * log(n));
}

/* Clicks that follow from who comes, to which item, and where; as docs/figures/measure-forgetting
 * makes them. Four in five come from a visitor who never comes again. */
static char *write_clicks(const char *name, uint32_t seed, uint64_t n, uint64_t first_fresh)
{
    char *path = g_build_filename(data_dir, name, NULL);
    GRand *random = g_rand_new_with_seed(seed);
    g_autoptr(GString) lines = g_string_new(NULL);

    for (uint64_t i = 0; i < n; i++) {
        const bool returns = g_rand_double(random) < .2;
        const uint64_t visitor = returns ? 3000000 + draw(random, 1000000) : first_fresh + i;
        const unsigned item = 2000000 + draw(random, 50000);
        const unsigned place = 2100000 + (unsigned)g_rand_int_range(random, 0, 20);
        const unsigned kind = 2200000 + (unsigned)g_rand_int_range(random, 0, 50);
        const double score = (returns ? weight_of(visitor, 3) : 0) + weight_of(item, 4) +
                             weight_of(place, 2) + weight_of(kind * UINT64_C(7) + item % 10, 2);

        g_string_append_printf(lines, "%d %u:1 %u:1 %u:1 %" G_GUINT64_FORMAT ":1\n",
                               g_rand_double(random) < 1 / (1 + exp(-score)), item, place, kind,
                               visitor);
    }
    ck_assert(g_file_set_contents(path, lines->str, (gssize)lines->len, NULL));
    g_rand_free(random);
    return path;
}

static JsonNode *learn_clicks(const char *train, const char *test, int64_t max_mib)
{
    g_autofree char *mib = g_strdup_printf("%" G_GINT64_FORMAT, max_mib);

    return run_for_card(
        PLACE_ONE_PROCESS, "rubato-fm",
        (const char *const[]){
            "--train",      train,  "--test",  test,  "--epochs",  "1", "--factors", "4",
            "--batch-size", "4096", "--model", "asp", "--workers", "1", "--servers", "1",
            "--max-mib",    mib,    "--evict", "lfu", NULL });
}

/* Only with RUBATO_TEST_ROWS, for it takes seconds. */
START_TEST(fm_with_a_quarter_of_the_memory_is_as_good)
{
    const char *rows = g_getenv("RUBATO_TEST_ROWS");
    const uint64_t n = rows == NULL ? 0 : g_ascii_strtoull(rows, NULL, 10);

    if (n == 0)
        return;
    g_autofree char *train = write_clicks("clicks.svm", 1, n, 10000000);
    g_autofree char *test = write_clicks("other_clicks.svm", 2, 50000, 1000000000);
    g_autoptr(JsonNode) all = learn_clicks(train, test, 4096);
    const int64_t quarter = count_of(all, "bytes") / 4 >> 20;
    g_autoptr(JsonNode) some = learn_clicks(train, test, quarter);

    g_print("%" G_GUINT64_FORMAT " rows: AUC %.4f; with %d of %d MiB %.4f, %d rows evicted\n", n,
            metric(all, "test_auc"), (int)quarter, (int)(count_of(all, "bytes") >> 20),
            metric(some, "test_auc"), (int)count_of(some, "evicted"));
    ck_assert_int_eq(count_of(all, "evicted"), 0);
    ck_assert_int_gt(count_of(some, "evicted"), (int64_t)n / 2); /* most of the visitors */
    ck_assert_int_le(count_of(some, "bytes"), quarter << 20);
    ck_assert_double_ge(metric(some, "test_auc"), metric(all, "test_auc") - .005);
    ck_assert_double_ge(metric(all, "test_auc"), .7);
}
END_TEST

#define SUMS_CLASSES 3u
#define SUMS_WIDTH 5u /* of a class, with 4 factors */

/* The learning rate is so small that the saved weights are those at the start. */
START_TEST(fm_begins_with_linear_terms_of_0_in_every_class)
{
    g_autofree char *rows = write_sums();
    g_autofree char *model = g_build_filename(data_dir, "begun", NULL);
    g_autofree char *path = g_build_filename(model, "weights.npy", NULL);
    g_autofree char *bytes = NULL;
    float row[SUMS_CLASSES * SUMS_WIDTH];
    size_t size;

    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--train", rows, "--loss", "softmax", "--factors", "4",
                                            "--rule", "sgd", "--learning-rate", "1e-9", "--epochs",
                                            "1", "--save", model, NULL });
    ck_assert_int_eq(number(card, "epochs"), 1);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    ck_assert_uint_ge(size, sizeof row);
    memcpy(row, bytes + size - sizeof row, sizeof row); /* the last key's */
    for (size_t i = 0; i < G_N_ELEMENTS(row); i++)
        ck_assert_msg((fabsf(row[i]) < 1e-5F) == (i % SUMS_WIDTH == 0), "value %zu is %g", i,
                      (double)row[i]);
}
END_TEST

START_TEST(fm_finds_what_linear_terms_cannot)
{
    const char *const arguments[] = { "--train", plain.train, "--test", plain.test, NULL };
    g_autoptr(JsonNode) fm = run_for_card(PLACE_ONE_PROCESS, "rubato-fm", arguments);
    g_autoptr(JsonNode) lr = run_for_card(PLACE_ONE_PROCESS, "rubato-lr", arguments);
    ck_assert_double_ge(metric(fm, "test_auc"), plain.true_auc - SHORTFALL);
    ck_assert_double_gt(metric(fm, "test_auc"), metric(lr, "test_auc") + 0.05);
}
END_TEST

/* If a key has different factors for each field, these must be learned separately. */
START_TEST(ffm_finds_what_one_set_of_factors_cannot)
{
    const Place place = (Place)_i;

    if (is_slow() && place == PLACE_ONE_PROCESS)
        return;
    g_autoptr(JsonNode) ffm =
        run_for_card(place, "rubato-fm",
                     (const char *const[]){ "--train", field_aware.train, "--test",
                                            field_aware.test, "--ffm", "--factors", "4", NULL });
    g_autoptr(JsonNode) fm =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--train", field_aware.train, "--test",
                                            field_aware.test, "--factors", "4", NULL });
    ck_assert_double_ge(metric(ffm, "test_auc"), field_aware.true_auc - SHORTFALL);
    ck_assert_double_gt(metric(ffm, "test_auc"), metric(fm, "test_auc") + 0.01);
}
END_TEST

/* The noise of the ratings is 0.1. */
START_TEST(fm_predicts_ratings)
{
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--train", ratings.train, "--test", ratings.test,
                                            "--loss", "squared", "--factors", "4", NULL });
    ck_assert_double_le(metric(card, "test_rmse"), 0.13);
}
END_TEST

/* Under bsp the floats are the same wherever servers and workers are. */
START_TEST(fm_under_bsp_comes_out_the_same_everywhere)
{
    const char *const arguments[] = { "--train", plain.train, "--test", plain.test, "--model",
                                      "bsp",     "--epochs",  "1",      NULL };
    g_autoptr(JsonNode) one = run_for_card(PLACE_ONE_PROCESS, "rubato-fm", arguments);
    g_autoptr(JsonNode) two = run_for_card(PLACE_TWO_NODES, "rubato-fm", arguments);
    ck_assert_double_eq(metric(one, "test_logloss"), metric(two, "test_logloss"));
}
END_TEST

START_TEST(fm_learns_under_every_rule)
{
    static const char *const rules[] = { "adagrad", "adam", "ftrl", "sgd" };

    if (is_slow() && strcmp(rules[_i], "ftrl") != 0)
        return;
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--train", plain.train, "--test", plain.test, "--rule",
                                            rules[_i], NULL });
    ck_assert_msg(metric(card, "test_auc") >= plain.true_auc - 0.01, "%s: AUC %g of %g", rules[_i],
                  metric(card, "test_auc"), plain.true_auc);
}
END_TEST

/* Real rows, in which pairs say little more than linear terms. */
START_TEST(fm_is_no_worse_than_linear_terms_on_real_rows)
{
    g_autofree char *train = data_path("a9a/a9a");
    g_autofree char *test = data_path("a9a/a9a.t");
    const char *const arguments[] = { "--train", train, "--test", test, NULL };
    g_autoptr(JsonNode) fm = run_for_card(PLACE_ONE_PROCESS, "rubato-fm", arguments);
    g_autoptr(JsonNode) lr = run_for_card(PLACE_ONE_PROCESS, "rubato-lr", arguments);

    ck_assert_double_ge(metric(fm, "test_auc"), metric(lr, "test_auc"));
    ck_assert_double_le(metric(fm, "test_logloss"), metric(lr, "test_logloss"));
}
END_TEST

/* Two nodes evaluate a model that one process has saved, and one process predicts with it. */
START_TEST(fm_goes_on_from_a_saved_model)
{
    size_t n_lines = 0, n_right = 0;
    g_autofree char *model = g_build_filename(data_dir, "model", NULL);
    g_autofree char *output = g_build_filename(data_dir, "output", NULL);
    g_autofree char *text = NULL, *test = NULL;
    g_autoptr(JsonNode) trained = run_for_card(
        PLACE_ONE_PROCESS, "rubato-fm",
        (const char *const[]){ "--train", field_aware.train, "--test", field_aware.test, "--ffm",
                               "--epochs", "2", "--save", model, NULL });
    g_autoptr(JsonNode) loaded = run_for_card(
        PLACE_TWO_NODES, "rubato-fm",
        (const char *const[]){ "--train", field_aware.train, "--test", field_aware.test, "--ffm",
                               "--epochs", "0", "--load", model, NULL });
    ck_assert_double_eq(metric(loaded, "test_logloss"), metric(trained, "test_logloss"));
    g_autoptr(JsonNode) tested =
        run_for_card(PLACE_TWO_NODES, "rubato-fm",
                     (const char *const[]){ "--load", model, "--test", field_aware.test, NULL });
    ck_assert_double_eq(metric(tested, "test_logloss"), metric(trained, "test_logloss"));

    Outcome outcome =
        run_program(PLACE_ONE_PROCESS, "rubato-fm",
                    (const char *const[]){ "--ffm", "--epochs", "0", "--load", model, "--predict",
                                           field_aware.test, "--output", output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    ck_assert(g_file_get_contents(field_aware.test, &test, NULL, NULL));
    g_auto(GStrv) predictions = g_strsplit(text, "\n", -1);
    g_auto(GStrv) lines = g_strsplit(test, "\n", -1);
    for (; lines[n_lines][0] != '\0'; n_lines++)
        n_right += (g_ascii_strtod(predictions[n_lines], NULL) > 0.5) == (lines[n_lines][0] == '1');
    ck_assert_uint_eq(g_strv_length(predictions), n_lines + 1);
    ck_assert_double_eq_tol((double)n_right / (double)n_lines, metric(trained, "test_accuracy"),
                            1e-9);
}
END_TEST

/* Where values are far from one another, pairs must not make it worse: a linear model has a logloss
 * of .112 there and an accuracy of .971 at best (scikit-learn 1.2, without a penalty). */
START_TEST(fm_with_classes_is_better_than_linear_terms_on_real_rows)
{
    g_autofree char *train = data_path("shuttle/shuttle.train.csv");
    g_autofree char *test = data_path("shuttle/shuttle.test.csv");
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-fm",
                     (const char *const[]){ "--train", train, "--test", test, "--loss", "softmax",
                                            "--standardize", NULL });

    ck_assert_double_ge(metric(card, "test_accuracy"), 0.985);
    ck_assert_double_le(metric(card, "test_logloss"), 0.112);
}
END_TEST

/* A bias b, and one linear term w, whose key one row of four has: with the penalty of all four rows
 * the optimum is 4 b + w = 2, b + 2 w = 2, so that b + w = 8/7. If rows without the key had no part
 * in the penalty, it would be 1.625. */
START_TEST(fm_penalises_linear_terms_in_all_rows)
{
    g_autofree char *dir = make_folder();
    g_autofree char *rows = g_build_filename(dir, "rows", NULL);
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    g_autofree char *text = NULL;

    ck_assert(g_file_set_contents(rows, "2 1:1\n0\n0\n0\n", -1, NULL));
    Outcome outcome = run_program(
        PLACE_ONE_PROCESS, "rubato-fm",
        (const char *const[]){ "--train", rows, "--loss", "squared", "--rule", "sgd",
                               "--learning-rate", "1", "--l2", "0.25", "--epochs", "100",
                               "--workers=1", "--predict", rows, "--output", output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    ck_assert_double_eq_tol(g_ascii_strtod(text, NULL), 8.0 / 7, 1e-3);
    remove_folder(dir);
}
END_TEST

/* What is predicted for four rows of three classes after training on them with more flags.
 * (transfer full) */
static char *predict_classes(const char *dir, const char *const *more)
{
    g_autofree char *rows = g_build_filename(dir, "rows", NULL);
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    const char *arguments[16] = { "--train",   rows, "--loss",    "softmax", "--epochs", "5",
                                  "--workers", "1",  "--predict", rows,      "--output", output };
    char *text = NULL;

    for (size_t i = 0; more[i] != NULL; i++)
        arguments[12 + i] = more[i];
    ck_assert(g_file_set_contents(rows, "a 1:1 2:1\nb 2:1 3:1\nc 3:1 4:1\nb 1:2 4:1\n", -1, NULL));
    Outcome outcome = run_program(PLACE_ONE_PROCESS, "rubato-fm", arguments);
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    return text;
}

/* Without either penalty texts of many classes are learned worse than with linear terms alone. */
START_TEST(fm_with_classes_has_penalties_by_default)
{
    g_autofree char *dir = make_folder();
    g_autofree char *by_default = predict_classes(dir, (const char *const[]){ NULL });
    g_autofree char *said =
        predict_classes(dir, (const char *const[]){ "--l2=0.25", "--l2-factors=0.002", NULL });
    g_autofree char *without_l2 = predict_classes(dir, (const char *const[]){ "--l2=0", NULL });
    g_autofree char *without_factors =
        predict_classes(dir, (const char *const[]){ "--l2-factors=0", NULL });

    ck_assert_str_eq(by_default, said);
    ck_assert_str_ne(by_default, without_l2);
    ck_assert_str_ne(by_default, without_factors);
    remove_folder(dir);
}
END_TEST

static const BadCall bad_calls[] = {
    { "1 1:1\n2 2:1\n", { "--factors", "0" }, 2, "--factors: expected a number from 1 to 256" },
    { "1 1:1\n2 2:1\n", { "--rule", "best" }, 2, "--rule: expected one of adagrad, adam, ftrl" },
    { "1 1:1\n2 2:1\n",
      { "--loss", "none" },
      2,
      "--loss: expected one of logistic, hinge, squared" },
    { "1 1:1\n2 2:1\n", { "--l1", "1" }, 2, "--l1: needs --rule ftrl" },
    { "1 1:1\n2 2:1\n", { "--l2-factors=-1" }, 2, "--l2-factors: expected a number from 0" },
    { "1 1:1\n2 2:1\n", { "--ffm" }, 1, "--ffm needs rows with fields" },
    { "1 1:1\n1 2:1\n",
      { NULL },
      1,
      "expected two labels, such as -1 and 1; all rows have label 1" },
    { "1 1:1\n2 2:1\n3 2:1\n",
      { NULL },
      1,
      "/train:2: expected one of two labels, 1 or 3, found 2" },
    { "1 1:1\n2 2:x\n", { NULL }, 1, ":2:5: expected " },
    { NULL, { NULL }, 1, "/train" },
};

START_TEST(fm_refuses_what_is_wrong)
{
    check_bad_call("rubato-fm", &bad_calls[_i]);
}
END_TEST

/* The model has no fields that no training row has. */
static const struct {
    const char *name, *text; /* of a file */
    const char *flag;        /* that is given it */
    const char *message;
} bad_fields[] = {
    { "other.ffm", "1 0:1:1 2:4:1\n", "--test", "a row has field 2: the rows to train on have" },
    { "other.ffm", "1 0:1:1 2:4:1\n", "--predict", "a row has field 2: the rows to train on have" },
    { "none.svm", "1 1:1 4:1\n", "--predict",
      "none.svm: expected rows of the format libffm, as the model's, found libsvm" },
};

START_TEST(ffm_refuses_rows_with_other_fields)
{
    g_autofree char *dir = make_folder();
    g_autofree char *train = g_build_filename(dir, "train.ffm", NULL);
    g_autofree char *other = g_build_filename(dir, bad_fields[_i].name, NULL);

    ck_assert(g_file_set_contents(train, "1 0:1:1 1:2:1\n0 0:3:1 1:2:1\n", -1, NULL));
    ck_assert(g_file_set_contents(other, bad_fields[_i].text, -1, NULL));
    Outcome outcome = run_program(
        PLACE_ONE_PROCESS, "rubato-fm",
        (const char *const[]){ "--train", train, bad_fields[_i].flag, other, "--ffm", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, bad_fields[_i].message) != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

static Suite *fm_suite(void)
{
    Suite *suite = suite_create("app_fm");
    TCase *tcase = tcase_create("fm");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fm_is_as_good_as_the_model_that_made_the_rows, 0,
                        (int)G_N_ELEMENTS(models) * 2);
    if (!is_slow())
        tcase_add_test(tcase, fm_learns_classes_that_linear_terms_cannot_tell);
    tcase_add_loop_test(tcase, the_card_tells_what_was_forgotten, 0, 2);
    tcase_add_test(tcase, fm_begins_with_linear_terms_of_0_in_every_class);
    tcase_add_test(tcase, fm_finds_what_linear_terms_cannot);
    tcase_add_loop_test(tcase, ffm_finds_what_one_set_of_factors_cannot, 0, 2);
    tcase_add_test(tcase, fm_predicts_ratings);
    tcase_add_test(tcase, fm_under_bsp_comes_out_the_same_everywhere);
    tcase_add_loop_test(tcase, fm_learns_under_every_rule, 0, 4);
    if (has_data("a9a/a9a") && !is_slow())
        tcase_add_test(tcase, fm_is_no_worse_than_linear_terms_on_real_rows);
    else if (!is_slow())
        g_print("skipped: the case on a9a; put the folder that has it into RUBATO_DATA_DIR\n");
    if (has_data("shuttle/shuttle.train.csv") && !is_slow())
        tcase_add_test(tcase, fm_with_classes_is_better_than_linear_terms_on_real_rows);
    else if (!is_slow())
        g_print("skipped: the case on shuttle; put the folder that has it into RUBATO_DATA_DIR\n");
    tcase_add_test(tcase, fm_penalises_linear_terms_in_all_rows);
    tcase_add_test(tcase, fm_with_classes_has_penalties_by_default);
    tcase_add_test(tcase, fm_goes_on_from_a_saved_model);
    tcase_add_loop_test(tcase, fm_refuses_what_is_wrong, 0, (int)G_N_ELEMENTS(bad_calls));
    tcase_add_loop_test(tcase, ffm_refuses_rows_with_other_fields, 0,
                        (int)G_N_ELEMENTS(bad_fields));
    suite_add_tcase(suite, tcase);

    TCase *forgetting = tcase_create("forgetting");

    tcase_set_timeout(forgetting, 200);
    tcase_add_test(forgetting, fm_with_a_quarter_of_the_memory_is_as_good);
    suite_add_tcase(suite, forgetting);
    return suite;
}

int main(void)
{
    int status = EXIT_FAILURE;

    data_dir = g_dir_make_tmp("rubato-fm-XXXXXX", NULL);
    if (data_dir != NULL &&
        factor_files_write(&plain, &plain_spec, data_dir, "plain.svm", N_TRAIN, N_TEST) &&
        factor_files_write(&field_aware, &field_aware_spec, data_dir, "fields.ffm", N_TRAIN,
                           N_TEST) &&
        factor_files_write(&ratings, &ratings_spec, data_dir, "ratings.svm", N_TRAIN, N_TEST))
        status = run_suite(fm_suite());
    if (data_dir != NULL)
        remove_folder(data_dir);
    g_free(data_dir);
    factor_files_clear(&plain);
    factor_files_clear(&field_aware);
    factor_files_clear(&ratings);
    return status;
}
