/* rubato-kmeans as a user runs it: on rows whose clusters are known, on images, and on wrong
 * rows. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

#define IMAGES "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
#define INERTIA_OF_IMAGES 1.94e6 /* the best of three seeds is at most this */

#define N_CLUSTERS 4
#define N_ROWS 400 /* a multiple of the clusters' number */

/* Rows around the corners of a square, in turn, each within .5 of its corner. */
static void files_make(ProgramFiles *files)
{
    GString *text = g_string_new(NULL);
    GRand *random = g_rand_new_with_seed(7);

    program_files_make(files, "svm");
    for (int i = 0; i < N_ROWS; i++) {
        char x[G_ASCII_DTOSTR_BUF_SIZE], y[G_ASCII_DTOSTR_BUF_SIZE];

        g_ascii_formatd(x, sizeof x, "%.4f", 10 * (i % 2) + g_rand_double(random) - 0.5);
        g_ascii_formatd(y, sizeof y, "%.4f", 10 * (i / 2 % 2) + g_rand_double(random) - 0.5);
        g_string_append_printf(text, "0 1:%s 2:%s\n", x, y);
    }
    ck_assert(g_file_set_contents(files->train, text->str, -1, NULL));
    g_string_free(text, TRUE);
    g_rand_free(random);
}

/* Each row has the cluster of every fourth row, and lies near its centre. */
static void check_clusters(const char *path)
{
    g_autofree char *text = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), N_ROWS + 1);
    for (size_t i = 0; i < N_ROWS; i++) {
        char *end;

        require_msg(strtoul(lines[i], &end, 10) == strtoul(lines[i % N_CLUSTERS], NULL, 10) &&
                        *end == '\t' && g_ascii_strtod(end + 1, NULL) < 0.8,
                    "row %zu: %s", i, lines[i]);
    }
    for (size_t i = 1; i < N_CLUSTERS; i++)
        ck_assert_int_ne(lines[i][0], lines[0][0]);
}

static const struct {
    const char *arguments[4];
} ways[] = {
    { { NULL } },
    { { "--init", "parallel" } },
    { { "--model", "asp", "--epochs", "10" } },
    { { "--model", "ssp", "--epochs", "10" } },
    { { "--model", "sparse_ssp", "--epochs", "10" } },
    { { "--batch-size", "64", "--epochs", "4" } },
    { { "--standardize", "--seed", "3" } },
};

/* Found, saved, loaded, and used for predictions. */
START_TEST(kmeans_finds_clusters_in_every_way)
{
    const char *const *extra = ways[_i].arguments;
    const Place place = (Place)(_i % 2);
    ProgramFiles files;

    files_make(&files);
    g_autoptr(JsonNode) card =
        run_for_card(place, "rubato-kmeans",
                     (const char *const[]){
                         "--train", files.train, "--clusters", "4", "--save", files.model,
                         extra[0] != NULL ? extra[0] : "--seed", extra[1] != NULL ? extra[1] : "1",
                         extra[2] != NULL ? extra[2] : "--keep-going", extra[3], NULL });
    ck_assert_double_gt(metric(card, "train_inertia"), 0);
    ck_assert_double_lt(metric(card, "train_inertia"), N_ROWS * 0.5);
    g_autoptr(JsonNode) tested = run_for_card(
        PLACE_ONE_PROCESS, "rubato-kmeans",
        (const char *const[]){ "--load", files.model, "--predict", files.train, "--output",
                               files.output, "--test", files.train, NULL });
    check_clusters(files.output);
    ck_assert_double_eq_tol(metric(tested, "test_inertia"), metric(card, "train_inertia"),
                            0.01 * metric(card, "train_inertia"));
    program_files_remove(&files);
}
END_TEST

/* Bit by bit, with as many workers; also what a snapshot interrupts. */
START_TEST(kmeans_under_bsp_comes_out_the_same_everywhere)
{
    ProgramFiles files;
    double inertia[3];

    files_make(&files);
    const char *arguments[] = { "--train", files.train, "--clusters", "9", "--tolerance",
                                "0",       NULL,        NULL,         NULL };
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            arguments[6] = "--checkpoint";
            arguments[7] = files.model;
        }
        g_autoptr(JsonNode) card =
            run_for_card(i == 1 ? PLACE_TWO_NODES : PLACE_ONE_PROCESS, "rubato-kmeans", arguments);
        inertia[i] = metric(card, "train_inertia");
        ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                         "convergence");
    }
    ck_assert_double_eq(inertia[0], inertia[1]);
    ck_assert_double_eq(inertia[0], inertia[2]);
    program_files_remove(&files);
}
END_TEST

/* The sums of a snapshot count the rows once. */
START_TEST(kmeans_goes_on_from_a_snapshot)
{
    const Place place = (Place)_i;
    ProgramFiles files;

    files_make(&files);
    const char *arguments[] = { "--train",      files.train, "--clusters", "9",
                                "--tolerance",  "0",         "--epochs",   "6",
                                "--checkpoint", files.model, NULL,         NULL };
    g_autoptr(JsonNode) whole = run_for_card(place, "rubato-kmeans", arguments);
    remove_folder(files.model);
    arguments[7] = "2";
    g_autoptr(JsonNode) half = run_for_card(place, "rubato-kmeans", arguments);
    arguments[7] = "6";
    arguments[10] = "--resume";
    g_autoptr(JsonNode) resumed = run_for_card(place, "rubato-kmeans", arguments);
    ck_assert_double_gt(metric(half, "train_inertia"), metric(whole, "train_inertia"));
    ck_assert_double_eq_tol(metric(resumed, "train_inertia"), metric(whole, "train_inertia"), 1e-6);
    program_files_remove(&files);
}
END_TEST

/* The image set that Debian has, in one process and on two nodes. */
START_TEST(kmeans_finds_good_clusters_of_images)
{
    double best = (double)INFINITY;

    for (int seed = 1; seed <= 3; seed++) {
        char text[2] = { (char)('0' + seed), '\0' };
        g_autoptr(JsonNode) card =
            run_for_card(seed == 2 ? PLACE_TWO_NODES : PLACE_ONE_PROCESS, "rubato-kmeans",
                         (const char *const[]){ "--train", IMAGES, "--seed", text, NULL });

        const double inertia = metric(card, "train_inertia");

        best = MIN(best, inertia);
    }
    ck_assert_double_le(best, INERTIA_OF_IMAGES);
}
END_TEST

static const BadCall bad_calls[] = {
    { NULL, { NULL }, 1, "cannot be opened" },
    { "0 1:1\n0 1:2\n", { "--clusters", "3" }, 1, "the rows to train on have only 2 different" },
    { "0 1:1\n0 1:2\n", { "--clusters", "0" }, 2, "--clusters: expected a number from 1 to" },
    { "0 1:1\n", { "--init", "best" }, 2, "--init: expected one of plus-plus, parallel" },
    { "0 1:1\n", { "--learning-rate", "1" }, 2, "--learning-rate: rubato-kmeans has none" },
    { "0 1:1\n", { "--validate", "x" }, 2, "--validate: has no effect here" },
    { "0 1:1\n", { "--tolerance", "-1" }, 2, "--tolerance: expected a number from 0" },
    { "0\n0\n", { NULL }, 1, "expected rows with values, found none" },
    { "0 99999999:1\n", { NULL }, 1, "keys go up to 99999999" },
};

START_TEST(kmeans_refuses_what_is_wrong)
{
    check_bad_call("rubato-kmeans", &bad_calls[_i]);
}
END_TEST

START_TEST(kmeans_refuses_another_number_of_clusters_than_the_model_has)
{
    ProgramFiles files;

    files_make(&files);
    json_node_unref(run_for_card(PLACE_ONE_PROCESS, "rubato-kmeans",
                                 (const char *const[]){ "--train", files.train, "--clusters", "4",
                                                        "--save", files.model, NULL }));
    Outcome outcome = run_program(PLACE_ONE_PROCESS, "rubato-kmeans",
                                  (const char *const[]){ "--load", files.model, "--test",
                                                         files.train, "--clusters", "5", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "has 4 clusters") != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    program_files_remove(&files);
}
END_TEST

START_TEST(kmeans_names_the_row_whose_column_it_does_not_know)
{
    ProgramFiles files;

    program_files_make(&files, "svm");
    ck_assert(g_file_set_contents(files.train, "0 0:1\n0 1:2\n", -1, NULL));
    ck_assert(g_file_set_contents(files.test, "0 0:1\n0 1:2\n0 0:1 7:2\n", -1, NULL));
    Outcome outcome = run_program(PLACE_ONE_PROCESS, "rubato-kmeans",
                                  (const char *const[]){ "--train", files.train, "--test",
                                                         files.test, "--clusters", "2", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "row 3: a row has key 7") != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    program_files_remove(&files);
}
END_TEST

static Suite *kmeans_suite(void)
{
    Suite *suite = suite_create("rubato-kmeans");
    TCase *tcase = tcase_create("rubato-kmeans");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, kmeans_finds_clusters_in_every_way, 0, (int)G_N_ELEMENTS(ways));
    tcase_add_test(tcase, kmeans_under_bsp_comes_out_the_same_everywhere);
    tcase_add_loop_test(tcase, kmeans_goes_on_from_a_snapshot, 0, 2);
    if (g_file_test(IMAGES, G_FILE_TEST_EXISTS) && !is_slow())
        tcase_add_test(tcase, kmeans_finds_good_clusters_of_images);
    else if (!is_slow())
        g_print("skipped: the case on images; Debian's package dataset-fashion-mnist has them\n");
    tcase_add_loop_test(tcase, kmeans_refuses_what_is_wrong, 0, (int)G_N_ELEMENTS(bad_calls));
    tcase_add_test(tcase, kmeans_refuses_another_number_of_clusters_than_the_model_has);
    tcase_add_test(tcase, kmeans_names_the_row_whose_column_it_does_not_know);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(kmeans_suite());
}
