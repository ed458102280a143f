/* rubato-mf as a user runs it: on ratings of which the noise is known, and on wrong rows. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

/* Ratings of rank 2, with biases and noise. */
typedef struct {
    int n_users, n_items, n_train, n_test;
    double noise;
} Ratings;

static const Ratings few = { 80, 60, 4000, 400, 0.1 };

/* As many that what cannot be learned is small: 3 numbers for each user and item, and 50 ratings
 * for each number. */
static const Ratings many = { 600, 400, 150000, 15000, 0.5 };

static double draw(GRand *random, double spread)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += g_rand_double(random) - 0.5;
    return spread * sum; /* about normal */
}

static double *draw_rows(GRand *random, int n)
{
    double *rows = g_new(double, 3 * (size_t)n);

    for (int i = 0; i < 3 * n; i++)
        rows[i] = draw(random, 0.7);
    return rows;
}

static void write_ratings(const char *path, const Ratings *spec, GRand *random, const double *users,
                          const double *items, int n)
{
    GString *text = g_string_new(NULL);

    for (int i = 0; i < n; i++) {
        const int u = g_rand_int_range(random, 0, spec->n_users);
        const int v = g_rand_int_range(random, 0, spec->n_items);
        const double *p = users + 3 * u, *q = items + 3 * v;
        const double rating =
            3 + p[0] + q[0] + p[1] * q[1] + p[2] * q[2] + draw(random, spec->noise);
        char number[G_ASCII_DTOSTR_BUF_SIZE];

        g_ascii_formatd(number, sizeof number, "%.4f", rating);
        g_string_append_printf(text, "%d,%d,%s\n", u, v, number);
    }
    ck_assert(g_file_set_contents(path, text->str, -1, NULL));
    g_string_free(text, TRUE);
}

static void files_make(ProgramFiles *files, const Ratings *spec)
{
    GRand *random = g_rand_new_with_seed(5);
    g_autofree double *users = draw_rows(random, spec->n_users);
    g_autofree double *items = draw_rows(random, spec->n_items);

    program_files_make(files, "ratings");
    write_ratings(files->train, spec, random, users, items, spec->n_train);
    write_ratings(files->test, spec, random, users, items, spec->n_test);
    g_rand_free(random);
}

static const struct {
    const char *arguments[4];
    double rmse;
} ways[] = {
    { { "--model", "bsp" }, 0.13 },       { { "--rule", "sgd", "--learning-rate", "0.05" }, 0.14 },
    { { "--model", "asp" }, 0.2 },        { { "--model", "ssp" }, 0.2 },
    { { "--model", "sparse_ssp" }, 0.2 },
};

static JsonNode *learn(Place place, const ProgramFiles *files, const char *const extra[4])
{
    return run_for_card(place, "rubato-mf",
                        (const char *const[]){ "--train", files->train, "--test", files->test,
                                               "--factors", "2", "--l2", "0.002", "--l2-bias",
                                               "0.002", "--epochs", "60", "--save", files->model,
                                               extra[0], extra[1], extra[2], extra[3], NULL });
}

START_TEST(mf_learns_ratings_in_every_way)
{
    const Place place = (Place)(_i % 2);
    ProgramFiles files;

    files_make(&files, &few);
    g_autoptr(JsonNode) card = learn(place, &files, ways[_i].arguments);
    ck_assert_double_le(metric(card, "test_rmse"), ways[_i].rmse);
    ck_assert_double_le(metric(card, "train_loss"), ways[_i].rmse * ways[_i].rmse);
    ck_assert_int_eq(number(card, "samples"), few.n_train * 60);
    program_files_remove(&files);
}
END_TEST

START_TEST(mf_under_bsp_comes_out_the_same_everywhere)
{
    ProgramFiles files;
    double rmse[2];

    files_make(&files, &few);
    for (int i = 0; i < 2; i++) {
        g_autoptr(JsonNode) card =
            run_for_card((Place)i, "rubato-mf",
                         (const char *const[]){ "--train", files.train, "--test", files.test,
                                                "--factors", "5", "--epochs", "3", NULL });
        rmse[i] = metric(card, "test_rmse");
    }
    ck_assert_double_eq(rmse[0], rmse[1]);
    program_files_remove(&files);
}
END_TEST

/* Loaded on nodes of another number, it tests and predicts the same, and is trained on. */
START_TEST(mf_uses_a_saved_model)
{
    ProgramFiles files;
    g_autofree char *text = NULL;

    files_make(&files, &few);
    g_autoptr(JsonNode) card = learn(PLACE_TWO_NODES, &files, (const char *const[4]){ NULL });
    g_autoptr(JsonNode) tested = run_for_card(
        PLACE_ONE_PROCESS, "rubato-mf",
        (const char *const[]){ "--load", files.model, "--test", files.test, "--predict", files.test,
                               "--output", files.output, NULL });
    ck_assert_double_eq(metric(tested, "test_rmse"), metric(card, "test_rmse"));
    ck_assert(g_file_get_contents(files.output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), (guint)few.n_test + 1);
    g_autoptr(JsonNode) more =
        run_for_card(PLACE_TWO_NODES, "rubato-mf",
                     (const char *const[]){ "--load", files.model, "--train", files.train, "--test",
                                            files.test, "--epochs", "1", "--l2", "0.002", NULL });
    ck_assert_double_eq_tol(metric(more, "test_rmse"), metric(card, "test_rmse"), 0.02);
    program_files_remove(&files);
}
END_TEST

START_TEST(mf_goes_on_from_a_snapshot)
{
    ProgramFiles files;

    files_make(&files, &few);
    const char *arguments[] = { "--train", files.train, "--test", files.test, "--epochs",
                                "4",       NULL,        NULL,     NULL,       NULL };
    g_autoptr(JsonNode) whole = run_for_card(PLACE_TWO_NODES, "rubato-mf", arguments);
    arguments[6] = "--checkpoint";
    arguments[7] = files.model;
    arguments[5] = "2";
    g_autoptr(JsonNode) half = run_for_card(PLACE_TWO_NODES, "rubato-mf", arguments);
    arguments[5] = "4";
    arguments[8] = "--resume";
    g_autoptr(JsonNode) resumed = run_for_card(PLACE_TWO_NODES, "rubato-mf", arguments);
    ck_assert_double_gt(metric(half, "test_rmse"), metric(whole, "test_rmse"));
    ck_assert_double_eq_tol(metric(resumed, "test_rmse"), metric(whole, "test_rmse"), 1e-4);
    program_files_remove(&files);
}
END_TEST

START_TEST(mf_keeps_the_epoch_that_validation_likes_best)
{
    ProgramFiles files;

    files_make(&files, &few);
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_ONE_PROCESS, "rubato-mf",
        (const char *const[]){ "--train", files.train, "--validate", files.test, "--test",
                               files.test, "--l2", "0", "--l2-bias", "0", "--factors", "40",
                               "--epochs", "60", "--patience", "2", NULL });
    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "patience");
    program_files_remove(&files);
}
END_TEST

/* Hardly worse than the noise, which nothing could learn. */
START_TEST(mf_learns_all_but_the_noise)
{
    ProgramFiles files;

    files_make(&files, &many);
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_ONE_PROCESS, "rubato-mf",
        (const char *const[]){ "--train", files.train, "--test", files.test, "--factors", "2",
                               "--l2", "0.005", "--l2-bias", "0.005", "--epochs", "40", NULL });
    ck_assert_double_le(metric(card, "test_rmse"), 1.02 * many.noise);
    program_files_remove(&files);
}
END_TEST

static const BadCall bad_calls[] = {
    { NULL, { NULL }, 1, "cannot be opened" },
    { "3 1:1 2:1 3:1\n", { NULL }, 1, "expected rows of a user and an item" },
    { "3 1:1 2:1\n", { "--factors", "0" }, 2, "--factors: expected a number from 1 to" },
    { "3 1:1 2:1\n", { "--rule", "adam" }, 2, "--rule: expected one of adagrad, sgd" },
    { "3 1:1 2:1\n", { "--batch-size", "4" }, 2, "--batch-size: rubato-mf has no batches" },
    { "3 1:1 2:1\n", { "--standardize", NULL }, 2, "--standardize: rows of users and items" },
    { "3 1:1 2:1\n", { "--l2", "-4" }, 2, "--l2: expected a number from 0" },
    { "3 1:1 2:1\n900 1:1 3:1\n",
      { "--learning-rate", "1e30" },
      1,
      "or scale the data; --keep-going" },
};

START_TEST(mf_refuses_what_is_wrong)
{
    check_bad_call("rubato-mf", &bad_calls[_i]);
}
END_TEST

static Suite *mf_suite(void)
{
    Suite *suite = suite_create("rubato-mf");
    TCase *tcase = tcase_create("rubato-mf");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, mf_learns_ratings_in_every_way, 0, (int)G_N_ELEMENTS(ways));
    tcase_add_test(tcase, mf_under_bsp_comes_out_the_same_everywhere);
    tcase_add_test(tcase, mf_uses_a_saved_model);
    tcase_add_test(tcase, mf_goes_on_from_a_snapshot);
    tcase_add_test(tcase, mf_keeps_the_epoch_that_validation_likes_best);
    if (!is_slow())
        tcase_add_test(tcase, mf_learns_all_but_the_noise);
    tcase_add_loop_test(tcase, mf_refuses_what_is_wrong, 0, (int)G_N_ELEMENTS(bad_calls));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(mf_suite());
}
