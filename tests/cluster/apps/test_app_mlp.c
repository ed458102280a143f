/* rubato-mlp as a user runs it: on rows that no linear model can tell apart, by tables and by
 * allreduce, in one process and on two nodes; on images, and on wrong rows. */
#include <glib/gstdio.h>
#include <rubato/mix.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/image_files.h"
#include "tests/support/runner.h"

#define IMAGES "/usr/share/datasets/fashion-mnist/"
#define ACCURACY_OF_IMAGES 0.875

enum { N_TRAIN = 1000, N_TEST = 300 };

static ProgramFiles files;

/* Points of a square. Their classes are those of a chess board with three fields a side, so that a
 * line leaves a third of them on the wrong side. */
static void write_rows(const char *path, unsigned n, uint64_t seed)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (unsigned i = 0; i < n; i++) {
        const uint64_t bits = rubato_mix64(seed + i);
        const unsigned x = (unsigned)(bits % 300), y = (unsigned)(bits >> 20) % 300;

        g_string_append_printf(text, "%s,%d.%02u,%d.%02u\n",
                               (x / 100 + y / 100) % 2 == 0 ? "even" : "odd", (int)(x / 100),
                               x % 100, (int)(y / 100), y % 100);
    }
    ck_assert(g_file_set_contents(path, text->str, -1, NULL));
}

static void set_up(void)
{
    program_files_make(&files, "csv");
    write_rows(files.train, N_TRAIN, 1);
    write_rows(files.test, N_TEST, 1000000);
}

static void tear_down(void)
{
    program_files_remove(&files);
}

#define LEARN                                                                          \
    "--train", files.train, "--test", files.test, "--standardize", "--batch-size=100", \
        "--epochs=40", "--hidden=24,12"

/* ---- learning ---- */

static const struct {
    Place place;
    const char *by, *model, *rule, *rate;
    double accuracy; /* a line has at most 0.67 */
} ways[] = {
    { PLACE_ONE_PROCESS, "tables", "ssp", "sgd", "0.3", 0.75 },
    { PLACE_TWO_NODES, "tables", "asp", "sgd", "0.3", 0.75 },
    { PLACE_TWO_NODES, "allreduce", "bsp", "adam", "0.02", 0.85 },
};

START_TEST(mlp_learns_what_no_line_tells_apart)
{
    g_autoptr(JsonNode) card = run_for_card(
        ways[_i].place, "rubato-mlp",
        (const char *const[]){ LEARN, "--by", ways[_i].by, "--model", ways[_i].model, "--rule",
                               ways[_i].rule, "--learning-rate", ways[_i].rate, NULL });

    ck_assert_double_ge(metric(card, "test_accuracy"), ways[_i].accuracy);
    ck_assert_int_eq(number(card, "samples"), 40 * N_TRAIN);
}
END_TEST

/* Few images, of which each worker has some. */
typedef struct {
    char *train, *test;
} Images;

static Images make_images(void)
{
    write_image_files(files.dir, 600, 100);
    return (Images){ g_build_filename(files.dir, "train-images-idx3-ubyte", NULL),
                     g_build_filename(files.dir, "t10k-images-idx3-ubyte", NULL) };
}

static void images_clear(Images *images)
{
    g_free(images->train);
    g_free(images->test);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Images, images_clear)

static const char *const rules[] = { "adam", "momentum" };
static const char *const bys[] = { "tables", "allreduce" };

/* The same sums and the same rule, up to the order in which floats are added. */
START_TEST(mlp_learns_by_allreduce_what_it_learns_by_tables)
{
    g_auto(Images) images = make_images();
    double losses[2];

    for (size_t by = 0; by < 2; by++) {
        g_autoptr(JsonNode) card = run_for_card(
            (Place)(_i % 2), "rubato-mlp",
            (const char *const[]){ "--train", images.train, "--test", images.test, "--epochs=2",
                                   "--hidden=16", "--batch-size=50", "--learning-rate=0.01", "--by",
                                   bys[by], "--rule", rules[_i], NULL });
        losses[by] = metric(card, "test_logloss");
    }
    ck_assert_double_eq_tol(losses[0], losses[1], 1e-3);
}
END_TEST

static char *read_bytes(const char *folder, const char *name, gsize *n)
{
    g_autofree char *path = g_build_filename(folder, name, NULL);
    char *bytes;

    ck_assert_msg(g_file_get_contents(path, &bytes, n, NULL), "%s", path);
    return bytes;
}

/* With as many workers; on one node and on two. */
START_TEST(mlp_comes_out_the_same_bit_by_bit)
{
    g_auto(Images) images = make_images();
    const Place other = _i == 0 ? PLACE_TWO_NODES : PLACE_ONE_PROCESS;
    g_autofree char *expected = NULL;
    gsize n_expected = 0, n;

    for (int i = 0; i < 2; i++) {
        g_autofree char *model = g_build_filename(files.dir, i == 0 ? "one" : "other", NULL);

        json_node_unref(run_for_card(
            i == 0 ? PLACE_ONE_PROCESS : other, "rubato-mlp",
            (const char *const[]){ "--train", images.train, "--epochs=2", "--hidden=20,10",
                                   "--batch-size=50", "--by", bys[_i], "--save", model, NULL }));
        g_autofree char *bytes = read_bytes(model, "layer-2.npy", &n);
        if (i == 0) {
            expected = g_steal_pointer(&bytes);
            n_expected = n;
            continue;
        }
        ck_assert_uint_eq(n, n_expected);
        ck_assert_mem_eq(bytes, expected, n);
    }
}
END_TEST

/* Whichever way it was trained, and goes on to be. */
START_TEST(mlp_is_saved_loaded_and_used)
{
    gsize n;

    g_autoptr(JsonNode) trained =
        run_for_card(PLACE_ONE_PROCESS, "rubato-mlp",
                     (const char *const[]){ LEARN, "--epochs=4", "--learning-rate=0.02", "--by",
                                            bys[_i], "--save", files.model, NULL });
    g_autoptr(JsonNode) tested = run_for_card(
        PLACE_TWO_NODES, "rubato-mlp",
        (const char *const[]){ "--load", files.model, "--test", files.test, "--predict", files.test,
                               "--output", files.output, NULL });
    ck_assert_double_eq(metric(tested, "test_accuracy"), metric(trained, "test_accuracy"));
    ck_assert_double_eq_tol(metric(tested, "test_logloss"), metric(trained, "test_logloss"), 1e-6);

    g_autofree char *text = read_bytes(files.dir, "output", &n);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), N_TEST + 1);
    for (size_t i = 0; i < N_TEST; i++)
        ck_assert_msg(g_str_has_prefix(lines[i], "even\t") || g_str_has_prefix(lines[i], "odd\t"),
                      "%s", lines[i]);

    g_autoptr(JsonNode) more = run_for_card(
        PLACE_ONE_PROCESS, "rubato-mlp",
        (const char *const[]){ "--load", files.model, "--train", files.train, "--test", files.test,
                               "--epochs=1", "--by", bys[1 - _i], "--learning-rate=0.0001", NULL });
    ck_assert_double_eq_tol(metric(more, "test_accuracy"), metric(trained, "test_accuracy"), 0.02);
}
END_TEST

START_TEST(mlp_keeps_the_epoch_that_validation_found_best)
{
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_TWO_NODES, "rubato-mlp",
                     (const char *const[]){ LEARN, "--learning-rate=0.02", "--validate", "0.2",
                                            "--by=allreduce", NULL });
    JsonObject *const validation =
        json_object_get_object_member(json_node_get_object(card), "validation");

    ck_assert_ptr_nonnull(validation);
    ck_assert_int_ge(json_object_get_int_member(validation, "best_epoch"), 1);
    ck_assert_double_ge(metric(card, "test_accuracy"), 0.8);
}
END_TEST

/* All workers stop in the same step: a worker alone would fail the others. */
START_TEST(mlp_by_allreduce_stops_on_every_node_at_the_target_loss)
{
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_TWO_NODES, "rubato-mlp",
        (const char *const[]){ LEARN, "--learning-rate=0.02", "--by=allreduce", "--epochs=100000",
                               "--target-loss=0.5", "--straggler=0.01:5", NULL });

    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "target-loss");
    ck_assert_double_le(lowest_loss(card), 0.5);
}
END_TEST

/* ---- images ---- */

/* The image set that Debian has: what the program does without flags but --test. */
START_TEST(mlp_learns_the_images_of_fashion_mnist)
{
    if (is_slow())
        return;
    if (!g_file_test(IMAGES "t10k-images-idx3-ubyte.gz", G_FILE_TEST_EXISTS)) {
        g_printerr("mlp_learns_the_images_of_fashion_mnist: skipped: there is no " IMAGES "\n");
        return;
    }
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-mlp",
                     (const char *const[]){ "--test", IMAGES "t10k-images-idx3-ubyte.gz",
                                            "--by=allreduce", NULL });
    ck_assert_double_ge(metric(card, "test_accuracy"), ACCURACY_OF_IMAGES);
}
END_TEST

/* ---- what is refused ---- */

#define GOOD "1 1:1\n-1 2:1\n"

static const BadCall bad_calls[] = {
    { GOOD, { "--hidden=" }, 2, "--hidden: expected the units of 1 to 16 layers" },
    { GOOD, { "--hidden=8,0" }, 2, "--hidden: expected the units" },
    { GOOD, { "--hidden=65537" }, 2, "each from 1 to 65536" },
    { GOOD, { "--by=votes" }, 2, "--by: expected one of tables, allreduce" },
    { GOOD, { "--rule=ftrl" }, 2, "--rule: expected one of adam, momentum, sgd" },
    { GOOD, { "--by=allreduce", "--model=ssp" }, 2, "--model ssp: has no effect with" },
    { "1 1:1\n1 2:1\n", { NULL }, 1, "all rows have label 1" },
    { "1 1:1\n-1 1:x\n", { NULL }, 1, "train:2:" },
    { "1 1:1\n-1 1048576:1\n", { NULL }, 1, "keys go up to 1048576" },
};

START_TEST(mlp_refuses_bad_calls_and_bad_rows)
{
    check_bad_call("rubato-mlp", &bad_calls[_i]);
}
END_TEST

/* Another shape, and labels and columns that the model does not know. */
START_TEST(mlp_refuses_what_a_loaded_model_is_not)
{
    json_node_unref(
        run_for_card(PLACE_ONE_PROCESS, "rubato-mlp",
                     (const char *const[]){ "--train", files.train, "--epochs=1", "--hidden=4",
                                            "--save", files.model, NULL }));
    Outcome outcome = run_program(
        PLACE_ONE_PROCESS, "rubato-mlp",
        (const char *const[]){ "--load", files.model, "--hidden=7", "--test", files.test, NULL });
    ck_assert_int_ne(outcome.status, 0);
    ck_assert_msg(strstr(outcome.err, "hidden") != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_set_contents(files.test, "even,1,2,3\n", -1, NULL));
    outcome =
        run_program(PLACE_ONE_PROCESS, "rubato-mlp",
                    (const char *const[]){ "--load", files.model, "--test", files.test, NULL });
    ck_assert_int_ne(outcome.status, 0);
    ck_assert_msg(strstr(outcome.err, "test.csv") != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

/* Rows to test and to predict may have keys that no row had in training; those to train on further
 * may not. */
START_TEST(mlp_leaves_out_keys_that_it_was_not_trained_on)
{
    g_autofree char *more = g_build_filename(files.dir, "more.svm", NULL);
    g_autofree char *less = g_build_filename(files.dir, "less.svm", NULL);

    ck_assert(g_file_set_contents(less, "1 1:1\n2 2:1\n", -1, NULL));
    ck_assert(g_file_set_contents(more, "1 1:1 700:900\n2 2:1 3:50\n", -1, NULL));
    g_autoptr(JsonNode) card =
        run_for_card(PLACE_ONE_PROCESS, "rubato-mlp",
                     (const char *const[]){ "--train", less, "--test", more, "--hidden=16",
                                            "--epochs=50", "--save", files.model, NULL });
    ck_assert_double_eq(metric(card, "test_accuracy"), 1);
    Outcome outcome = run_program(
        PLACE_ONE_PROCESS, "rubato-mlp",
        (const char *const[]){ "--load", files.model, "--train", more, "--epochs=1", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "--train: keys go up to 700, and the model in ") != NULL,
                  "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

static Suite *mlp_suite(void)
{
    Suite *suite = suite_create("app_mlp");
    TCase *cases = tcase_create("mlp");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, mlp_learns_what_no_line_tells_apart, 0, (int)G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, mlp_learns_by_allreduce_what_it_learns_by_tables, 0,
                        (int)G_N_ELEMENTS(rules));
    tcase_add_loop_test(cases, mlp_comes_out_the_same_bit_by_bit, 0, 2);
    tcase_add_loop_test(cases, mlp_is_saved_loaded_and_used, 0, 2);
    tcase_add_test(cases, mlp_keeps_the_epoch_that_validation_found_best);
    tcase_add_test(cases, mlp_by_allreduce_stops_on_every_node_at_the_target_loss);
    tcase_add_test(cases, mlp_learns_the_images_of_fashion_mnist);
    tcase_add_loop_test(cases, mlp_refuses_bad_calls_and_bad_rows, 0, (int)G_N_ELEMENTS(bad_calls));
    tcase_add_test(cases, mlp_refuses_what_a_loaded_model_is_not);
    tcase_add_test(cases, mlp_leaves_out_keys_that_it_was_not_trained_on);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return run_suite(mlp_suite());
}
