/* The programs as a user runs them: in one process and as two nodes through `rubato run`. */
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/image_files.h"
#include "tests/support/runner.h"

#define ACCURACY_GENERATED 0.9
#define ACCURACY_FEW 0.8 /* with a tenth of the images */

/* A folder with a tenth of the images that --generated makes, for tests of what a program does
 * besides. */
static char *images;

static void make_images(void)
{
    images = make_folder();
    write_image_files(images, 6000, 1000);
}

static void remove_images(void)
{
    remove_folder(images);
    g_clear_pointer(&images, g_free);
}

START_TEST(hello_counts_with_two_workers_on_each_node)
{
    const Place place = (Place)_i;
    Outcome outcome = run_program(place, "rubato-hello", (const char *const[]){ NULL });

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    ck_assert_msg(
        strstr(outcome.out, place == PLACE_ONE_PROCESS ? "key 42: 200\n" : "key 42: 400\n") != NULL,
        "%.4000s", outcome.out);
    outcome_clear(&outcome);
}
END_TEST

static const struct {
    const char *program;
    const char *arguments[4];
    int status;
    const char *message;
} bad_calls[] = {
    { "rubato-lr", { NULL }, 2, "rubato-lr: --train: give the file to train on" },
    { "rubato-lr",
      { "--train", "/no/such/file" },
      1,
      "rubato-lr: /no/such/file: cannot be opened" },
    { "rubato-hello",
      { "--iterations=7" },
      2,
      "rubato-hello: unexpected argument \"--iterations=7\"\nTry" },
    { "rubato-hello", { "--servers", "2", "7" }, 2, "rubato-hello: unexpected argument \"7\"" },
    { "rubato-softmax", { "--model=x" }, 2, "rubato-softmax: --model: expected one of asp, bsp" },
    { "rubato-softmax", { "--by=votes" }, 2, "rubato-softmax: --by: expected one of tables, allr" },
    { "rubato-softmax",
      { "--by=allreduce", "--model=ssp" },
      2,
      "rubato-softmax: --model ssp: has no effect with --by allreduce" },
    { "rubato-softmax", { "--data", "/no/such" }, 1, "rubato-softmax: /no/such/train-images-idx3" },
};

START_TEST(programs_refuse_bad_calls)
{
    Outcome outcome =
        run_program(PLACE_ONE_PROCESS, bad_calls[_i].program, bad_calls[_i].arguments);

    ck_assert_int_eq(outcome.status, bad_calls[_i].status);
    ck_assert_msg(g_str_has_prefix(outcome.err, bad_calls[_i].message), "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

/* Softmax regression on generated images, which every machine has. */

static JsonNode *learn(Place place, const char *model, const char *data, const char *folder)
{
    return run_for_card(place, "rubato-softmax",
                        (const char *const[]){ "--model", model, "--epochs", "1", "--batch-size",
                                               "256", "--learning-rate", "0.3", data, folder,
                                               NULL });
}

/* All of them: one model in one process, another on two nodes. */
START_TEST(softmax_learns_generated_images)
{
    const Place place = (Place)_i;
    const char *model = place == PLACE_ONE_PROCESS ? "sparse_ssp" : "bsp";
    g_autoptr(JsonNode) card = learn(place, model, "--generated", NULL);

    ck_assert_double_ge(metric(card, "test_accuracy"), ACCURACY_GENERATED);
    ck_assert_int_eq(number(card, "samples"), 60000);
    ck_assert_int_eq(number(card, "epochs"), 1);
    ck_assert_int_eq(number(card, "servers"), 2);
}
END_TEST

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

START_TEST(softmax_learns_under_every_model)
{
    const Place place = (Place)(_i % 2);
    g_autoptr(JsonNode) card = learn(place, models[_i / 2], "--data", images);

    ck_assert_double_ge(metric(card, "test_accuracy"), ACCURACY_FEW);
    ck_assert_int_eq(number(card, "samples"), 6000);
}
END_TEST

START_TEST(softmax_under_bsp_comes_out_the_same_everywhere)
{
    double losses[3];

    if (is_slow()) /* how it is compiled changes the figures alone, not whether they are the same */
        return;
    for (int i = 0; i < 3; i++) {
        g_autoptr(JsonNode) card =
            run_for_card(i < 2 ? PLACE_ONE_PROCESS : PLACE_TWO_NODES, "rubato-softmax",
                         (const char *const[]){ "--data", images, "--model", "bsp", "--epochs", "1",
                                                "--batch-size", "512", NULL });
        losses[i] = metric(card, "train_loss");
    }
    ck_assert_double_eq(losses[1], losses[0]);
    ck_assert_double_eq(losses[2], losses[0]);
}
END_TEST

/* ---- by allreduce ---- */

static JsonNode *learn_and_save(Place place, const char *by, const char *model)
{
    return run_for_card(place, "rubato-softmax",
                        (const char *const[]){ "--by", by, "--epochs=2", "--batch-size=256",
                                               "--learning-rate=0.3", "--data", images, "--save",
                                               model, NULL });
}

static int compare_names(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* What a model's file says, with all checksums alike. */
static char *read_form(const char *model, const char *name)
{
    g_autofree char *path = g_build_filename(model, name, NULL);
    g_autoptr(GRegex) checksum = g_regex_new("[0-9a-f]{16}", 0, 0, NULL);
    g_autofree char *text = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    return g_regex_replace_literal(checksum, text, -1, 0, "(checksum)", 0, NULL);
}

/* Files of a model, and their sizes. */
static char *list_model(const char *model)
{
    GDir *const dir = g_dir_open(model, 0, NULL);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    const char *name;

    ck_assert_ptr_nonnull(dir);
    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *file = g_build_filename(model, name, NULL);
        GStatBuf status;

        ck_assert_int_eq(g_stat(file, &status), 0);
        g_ptr_array_add(names, g_strdup_printf("%s %ld", name, (long)status.st_size));
    }
    g_dir_close(dir);
    g_ptr_array_sort(names, compare_names);
    g_ptr_array_add(names, NULL);
    return g_strjoinv("\n", (char **)names->pdata);
}

START_TEST(softmax_learns_by_allreduce_what_it_learns_by_tables)
{
    const Place place = (Place)_i;
    g_autofree char *dir = make_folder();
    g_autofree char *tables = g_build_filename(dir, "tables", NULL);
    g_autofree char *allreduce = g_build_filename(dir, "allreduce", NULL);
    g_autoptr(JsonNode) card = learn_and_save(place, "tables", tables);
    g_autoptr(JsonNode) other = learn_and_save(place, "allreduce", allreduce);

    /* the same sums, up to the order in which they are added */
    ck_assert_double_eq_tol(metric(other, "train_loss"), metric(card, "train_loss"), 1e-4);
    ck_assert_double_eq_tol(metric(other, "test_accuracy"), metric(card, "test_accuracy"), 0.01);
    ck_assert_double_ge(metric(other, "test_accuracy"), ACCURACY_FEW);
    ck_assert_int_eq(number(other, "samples"), 2 * 6000);

    g_autofree char *files = list_model(tables), *other_files = list_model(allreduce);
    ck_assert_str_eq(other_files, files);
    for (int i = 0; i < 2; i++) {
        const char *const name = i == 0 ? "model.json" : "weights.table";
        g_autofree char *form = read_form(tables, name), *other_form = read_form(allreduce, name);

        ck_assert_str_eq(other_form, form);
    }
    remove_folder(dir);
}
END_TEST

/* All workers stop in the same step: a worker alone would fail the others. */
START_TEST(softmax_by_allreduce_stops_on_every_node_at_the_target_loss)
{
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_TWO_NODES, "rubato-softmax",
        (const char *const[]){ "--data", images, "--epochs", "1000", "--batch-size", "256", "--by",
                               "allreduce", "--target-loss", "1", "--straggler", "0.01:5", NULL });

    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "target-loss");
    ck_assert_double_le(lowest_loss(card), 1);
    ck_assert_int_lt(number(card, "samples"), 1000 * 6000);
}
END_TEST

/* Saved, loaded and used. */

/* Three black images of 28 × 28. */
static char *write_images(const char *dir)
{
    static const char header[16] = { 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28 };
    char *path = g_build_filename(dir, "images", NULL);
    char bytes[sizeof header + 3 * 28 * 28] = { 0 };

    memcpy(bytes, header, sizeof header);
    ck_assert(g_file_set_contents(path, bytes, sizeof bytes, NULL));
    return path;
}

START_TEST(softmax_predicts_with_a_saved_model)
{
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *black = write_images(dir);
    g_autofree char *classes = g_build_filename(dir, "classes", NULL);
    g_autofree char *picture = g_build_filename(dir, "curve.svg", NULL);
    g_autofree char *gnuplot = g_find_program_in_path("gnuplot");
    g_autofree char *text = NULL;

    json_node_unref(run_for_card(
        PLACE_ONE_PROCESS, "rubato-softmax",
        (const char *const[]){ "--data", images, "--epochs", "1", "--batch-size", "4096", "--save",
                               model, gnuplot != NULL ? "--plot" : NULL, picture, NULL }));
    if (gnuplot != NULL) {
        ck_assert(g_file_get_contents(picture, &text, NULL, NULL));
        ck_assert(strstr(text, "</svg>") != NULL);
        g_clear_pointer(&text, g_free);
    }

    Outcome outcome = run_program(
        PLACE_TWO_NODES, "rubato-softmax",
        (const char *const[]){ "--load", model, "--predict", black, "--output", classes, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(classes, &text, NULL, NULL));
    ck_assert_msg(strlen(text) == 6 && text[0] == text[2] && text[0] == text[4] &&
                      text[1] == '\n' && g_ascii_isdigit(text[0]),
                  "%s", text);
    remove_folder(dir);
}
END_TEST

/* A target that is not reached by chance. */
START_TEST(softmax_stops_on_every_node_at_the_target_loss)
{
    g_autoptr(JsonNode) card = run_for_card(
        PLACE_TWO_NODES, "rubato-softmax",
        (const char *const[]){ "--data", images, "--epochs", "1000", "--batch-size", "256",
                               "--target-loss", "1", "--straggler", "0.01:5", NULL });

    ck_assert_str_eq(json_object_get_string_member(json_node_get_object(card), "stopped"),
                     "target-loss");
    ck_assert_double_le(lowest_loss(card), 1);
    ck_assert_int_lt(number(card, "samples"), 1000 * 6000);
}
END_TEST

/* With --json - standard output has the JSON alone; on a cluster one node speaks. */
START_TEST(json_on_standard_output_stands_alone)
{
    const Place place = (Place)_i;

    if (is_slow()) /* how it is compiled changes nothing of what is written */
        return;
    Outcome outcome =
        run_program(place, "rubato-softmax",
                    (const char *const[]){ "--data", images, "--epochs", "1", "--batch-size",
                                           "4096", "--json", "-", NULL });

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    const char *json = strchr(outcome.out, '{');
    ck_assert_ptr_nonnull(json);
    if (place == PLACE_ONE_PROCESS)
        ck_assert_ptr_eq(json, outcome.out);
    else
        ck_assert(g_str_has_prefix(outcome.out, "[3] {"));
    g_autoptr(JsonNode) card = json_from_string(json, NULL);
    ck_assert_ptr_nonnull(card);
    ck_assert(strstr(outcome.err, "test accuracy") != NULL);
    ck_assert(strstr(outcome.err, "epoch 1/1") != NULL);
    if (place == PLACE_TWO_NODES)
        ck_assert_msg(strstr(outcome.err, "[7] ") == NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

static Suite *apps_suite(void)
{
    Suite *suite = suite_create("apps");
    TCase *hello = tcase_create("hello");
    TCase *softmax = tcase_create("softmax");
    TCase *calls = tcase_create("calls");

    tcase_set_timeout(hello, 60);
    tcase_set_timeout(softmax, 200);
    tcase_set_timeout(calls, 60);
    tcase_add_loop_test(hello, hello_counts_with_two_workers_on_each_node, 0, 2);
    tcase_add_unchecked_fixture(softmax, make_images, remove_images);
    tcase_add_loop_test(softmax, softmax_learns_generated_images, 0, 2);
    tcase_add_loop_test(softmax, softmax_learns_under_every_model, 0,
                        (int)G_N_ELEMENTS(models) * 2);
    tcase_add_test(softmax, softmax_under_bsp_comes_out_the_same_everywhere);
    tcase_add_loop_test(softmax, softmax_learns_by_allreduce_what_it_learns_by_tables, 0, 2);
    tcase_add_test(softmax, softmax_by_allreduce_stops_on_every_node_at_the_target_loss);
    tcase_add_test(softmax, softmax_predicts_with_a_saved_model);
    tcase_add_test(softmax, softmax_stops_on_every_node_at_the_target_loss);
    tcase_add_loop_test(softmax, json_on_standard_output_stands_alone, 0, 2);
    tcase_add_loop_test(calls, programs_refuse_bad_calls, 0, (int)G_N_ELEMENTS(bad_calls));
    suite_add_tcase(suite, hello);
    suite_add_tcase(suite, softmax);
    suite_add_tcase(suite, calls);
    return suite;
}

int main(void)
{
    return run_suite(apps_suite());
}
