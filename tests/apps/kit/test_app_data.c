/* The flags of training data, and the readers that they ask for. */
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/kit/app.h"
#include "apps/kit/model/app_keys.h"
#include "tests/support/data/image_files.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#define ARGUMENTS_MAX 12

static AppData data;

static const AppProgram program = {
    .name = "rubato-test",
    .summary = "Tests.",
    .data = &data,
    .epochs = 3,
    .batch_size = 10,
    .learning_rate = 1,
};

static bool parse(App *app, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX + 2] = { (char *)"rubato-test" };
    int argc = 1;

    g_unsetenv("RUBATO_CLUSTER");
    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = (char *)arguments[argc - 1];
    return app_parse(app, &program, argc, argv);
}

START_TEST(data_flags_not_given_have_their_defaults)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--train", "a", NULL }));
    ck_assert_str_eq(data.train[0], "a");
    ck_assert_ptr_null(data.test);
    ck_assert_ptr_null(data.format);
    ck_assert_uint_eq(data.max_bad_rows, 0);
    ck_assert_int_eq(data.cache, RUBATO_DATA_CACHE_NONE);
    ck_assert_int_eq(data.split, RUBATO_SPLIT_FIXED);
    app_end(&app, NULL);
    ck_assert_ptr_null(data.train);
}
END_TEST

START_TEST(data_flags_given_are_taken)
{
    App app;

    ck_assert(
        parse(&app, (const char *const[]){ "--train=a", "--train=b*", "--test=c", "--format=csv",
                                           "--label-column=y", "--categorical=u,v",
                                           "--hash-bits=20", "--max-bad-rows=7", "--cache=d",
                                           "--split=dynamic", "--batch-size=11", NULL }));
    ck_assert_uint_eq(g_strv_length(data.train), 2);
    ck_assert_str_eq(data.test[0], "c");
    ck_assert_str_eq(data.format, "csv");
    ck_assert_str_eq(data.label_column, "y");
    ck_assert_str_eq(data.categorical[1], "v");
    ck_assert_uint_eq(data.hash_bits, 20);
    ck_assert_uint_eq(data.max_bad_rows, 7);
    ck_assert_int_eq(data.cache, RUBATO_DATA_CACHE_KEEP);
    ck_assert_str_eq(data.cache_directory, "d");

    const RubatoReaderOptions options = app_data_reader_options(&app, &data, 4);
    ck_assert_uint_eq(options.epochs, 3);
    ck_assert_uint_eq(options.batch_rows, 3);
    ck_assert(options.shuffle);
    ck_assert_uint_eq(options.seed, 1);
    ck_assert_int_eq(options.split, RUBATO_SPLIT_DYNAMIC);
    app_end(&app, NULL);
}
END_TEST

START_TEST(a_cache_lies_beside_its_input_or_nowhere)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--train=a", "--cache=beside", NULL }));
    ck_assert_int_eq(data.cache, RUBATO_DATA_CACHE_KEEP);
    ck_assert_ptr_null(data.cache_directory);
    app_end(&app, NULL);
    ck_assert(parse(&app, (const char *const[]){ "--train=a", "--cache=none", NULL }));
    ck_assert_int_eq(data.cache, RUBATO_DATA_CACHE_NONE);
    app_end(&app, NULL);
}
END_TEST

START_TEST(a_model_that_only_predicts_needs_no_rows_to_train_on)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--load=a", "--predict=b", NULL }));
    app_end(&app, NULL);
}
END_TEST

static const char *const bad_flags[][2] = {
    { "--seed=1", "--train: give the file to train on" },
    { "--hash-bits=65", "--hash-bits: expected a number from 1 to 64, found 65" },
    { "--hash-bits=-1", "--hash-bits: expected a number from 1" },
    { "--max-bad-rows=-1", "--max-bad-rows: expected a number from 0, found -1" },
    { "--split=even", "--split: expected fixed or dynamic, found \"even\"" },
};

START_TEST(data_flags_that_are_wrong_are_refused_with_a_reason)
{
    char text[1024];
    int ends[2];
    App app;

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    ck_assert(
        !parse(&app, (const char *const[]){ bad_flags[_i][0], _i > 0 ? "--train=a" : NULL, NULL }));
    const ssize_t n = read(ends[0], text, sizeof text - 1);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_msg(strstr(text, bad_flags[_i][1]) != NULL, "%s", text);
}
END_TEST

START_TEST(files_are_opened_as_the_flags_say)
{
    g_autofree char *path = NULL;
    const int fd = g_file_open_tmp("rubato-rows-XXXXXX", &path, NULL);
    g_autoptr(GError) error = NULL;
    RubatoDataSummary summary;
    App app;

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(g_file_set_contents(path, "x,y\nred,1\nblue,2\nblue\n", -1, NULL));
    ck_assert(parse(&app, (const char *const[]){ "--train", path, "--format=csv",
                                                 "--label-column=y", "--categorical=x",
                                                 "--hash-bits=8", "--max-bad-rows=1", NULL }));
    g_autoptr(RubatoDataset) dataset =
        app_data_open(&data, (const char *const *)data.train, &error);
    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    ck_assert_uint_eq(summary.n_rows, 2);
    ck_assert_uint_eq(summary.n_bad_rows, 1);
    ck_assert_uint_lt(summary.max_key, 256);
    ck_assert_double_eq((double)summary.max_label, 2);
    app_data_note_bad_rows(&app, &summary);
    ck_assert_uint_eq(app.notes->len, 1);
    ck_assert_ptr_nonnull(strstr(app.notes->pdata[0], "cannot be read: 1"));
    summary.n_bad_rows = 0;
    app_data_note_bad_rows(&app, &summary);
    ck_assert_uint_eq(app.notes->len, 1);
    g_unlink(path);
    ck_assert_ptr_null(app_data_open_unlabelled(&data, path, &error));
    app_end(&app, NULL);
}
END_TEST

/* The lowest and the highest label of a dataset, which is freed. */
static void get_labels(RubatoDataset *rows, float *labels)
{
    RubatoDataSummary summary;

    ck_assert_ptr_nonnull(rows);
    ck_assert(rubato_dataset_summary(rows, &summary, NULL));
    ck_assert_uint_eq(summary.n_rows, 100);
    labels[0] = summary.min_label;
    labels[1] = summary.max_label;
    rubato_dataset_free(rows);
}

START_TEST(images_have_the_labels_of_the_file_beside_them)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-images-XXXXXX", NULL);
    g_autofree char *images = g_build_filename(dir, "train-images-idx3-ubyte", NULL);
    g_autofree char *glob = g_build_filename(dir, "tr*-images-idx3-ubyte", NULL);
    g_autofree char *path = g_build_filename(dir, "train-labels-idx1-ubyte", NULL);
    g_autoptr(GError) error = NULL;
    float labels[2];
    App app;

    write_image_files(dir, 100, 10);
    ck_assert(parse(&app, (const char *const[]){ "--train", images, NULL }));
    get_labels(app_data_open_train(&data, NULL), labels);
    ck_assert_float_eq(labels[0], 0);
    ck_assert_float_eq(labels[1], 9);
    get_labels(app_data_open_unlabelled(&data, images, NULL), labels);
    ck_assert_float_eq(labels[1], 0);
    app_end(&app, NULL);
    ck_assert(parse(&app, (const char *const[]){ "--train", glob, NULL }));
    get_labels(app_data_open_train(&data, NULL), labels);
    ck_assert_float_eq(labels[1], 9);
    ck_assert(g_file_set_contents(path, "none", -1, NULL));
    ck_assert_ptr_null(app_data_open_train(&data, &error));
    ck_assert_msg(strstr(error->message, path) != NULL, "%s", error->message);
    ck_assert_int_eq(g_unlink(path), 0);
    get_labels(app_data_open_train(&data, NULL), labels);
    ck_assert_float_eq(labels[1], 0);
    app_end(&app, NULL);
    remove_tree(dir);
}
END_TEST

/* Not those of a folder that has such a name. Of several files none may go without, unless the
 * program has no use for them. */
START_TEST(images_of_several_files_are_refused_where_labels_matter)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-images-XXXXXX", NULL);
    g_autofree char *folder = g_build_filename(dir, "x-images-idx3-y", NULL);
    g_autofree char *labels = g_build_filename(dir, "x-labels-idx1-y", NULL);
    g_autofree char *train = g_build_filename(folder, "train-images-idx3-ubyte", NULL);
    g_autofree char *plain = g_build_filename(folder, "plain", NULL);
    g_autofree char *other = g_build_filename(labels, "plain", NULL);
    g_autoptr(GError) error = NULL;
    float found[2];
    App app;

    ck_assert_int_eq(g_mkdir(folder, 0700), 0);
    ck_assert_int_eq(g_mkdir(labels, 0700), 0);
    write_image_files(folder, 100, 10);
    ck_assert(parse(
        &app, (const char *const[]){ "--format=idx", "--train", train, "--train", train, NULL }));
    ck_assert_ptr_null(app_data_open_train(&data, &error));
    ck_assert_msg(strstr(error->message, "train-labels-idx1-ubyte: are the labels of one of "
                                         "several files") != NULL,
                  "%s", error->message);
    data.ignores_labels = true;
    g_autoptr(RubatoDataset) both = app_data_open_train(&data, NULL);
    ck_assert_ptr_nonnull(both);
    app_end(&app, NULL);

    /* what lies in the other folder is no file of labels */
    ck_assert(g_file_set_contents(other, "none", -1, NULL));
    ck_assert_int_eq(g_rename(train, plain), 0);
    ck_assert(parse(&app, (const char *const[]){ "--format=idx", "--train", plain, NULL }));
    get_labels(app_data_open_train(&data, NULL), found);
    ck_assert_float_eq(found[1], 0);
    app_end(&app, NULL);
    remove_tree(dir);
}
END_TEST

static RubatoDataKeys *keys_from(const char *json)
{
    g_autoptr(JsonNode) node = json_from_string(json, NULL);

    ck_assert_ptr_nonnull(node);
    return app_keys_read(json_node_get_object(node));
}

#define KEYS \
    "{\"format\":\"csv\",\"columns\":2,\"names\":[\"x\",\"y\"],\"label\":1,\"categorical\":[]}"

/* The error says what is wrong, what it should be, and what to do. */
START_TEST(rows_that_a_model_does_not_know_are_refused)
{
    g_autofree char *path = NULL;
    const int fd = g_file_open_tmp("rubato-rows-XXXXXX", &path, NULL);
    g_autoptr(GError) error = NULL;
    App app;

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(g_file_set_contents(path, "y,x\n1,2\n", -1, NULL));
    ck_assert(parse(&app, (const char *const[]){ "--load=a", "--epochs=1", "--train", path,
                                                 "--format=csv", "--label-column=1", NULL }));
    ck_assert(app_data_check_keys(&app, NULL)); /* there are no keys to compare with */
    app_data_take_keys(&data, keys_from(KEYS));
    ck_assert(!app_data_check_keys(&app, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH));
    ck_assert(g_str_has_prefix(error->message, path));
    ck_assert_str_eq(
        error->message + strlen(path),
        ":1:1: expected \"x\", the name of column 0 in the model's rows, found \"y\". "
        "The model's rows: 2 columns, x, y; --format csv --label-column y. Give it rows "
        "with these, in this order, and the same flags");
    ck_assert(g_file_set_contents(path, "x,y\n1,2\n", -1, NULL));
    ck_assert(app_data_check_keys(&app, NULL));
    app_end(&app, NULL);
    g_unlink(path);
}
END_TEST

START_TEST(rows_to_predict_may_lack_the_label)
{
    static const struct {
        const char *text;
        bool is_good;
    } cases[] = { { "x,y\n1,2\n", true },
                  { "x,y\n1,\n", true },
                  { "x\n1\n", true },
                  { "y\n1\n", false },
                  { "1\n", false } };
    g_autofree char *path = NULL;
    const int fd = g_file_open_tmp("rubato-rows-XXXXXX", &path, NULL);
    App app;

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(
        parse(&app, (const char *const[]){ "--load=a", "--predict", path, "--format=csv", NULL }));
    app_data_take_keys(&data, keys_from(KEYS));
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;

        ck_assert(g_file_set_contents(path, cases[i].text, -1, NULL));
        ck_assert_int_eq(app_data_check_keys(&app, &error), cases[i].is_good);
        ck_assert(error == NULL ||
                  g_str_has_suffix(error->message, "only the label may be missing (where no header "
                                                   "shows it, say --label-column '')"));
    }
    app_end(&app, NULL);
    g_unlink(path);
}
END_TEST

START_TEST(what_no_flag_says_of_rows_is_as_the_loaded_model_has_it)
{
    static const char keys[] = "{\"format\":\"csv\",\"hash_bits\":20,\"columns\":3,\"label\":2,"
                               "\"categorical\":[0,1]}";
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--load=a", "--test=b", NULL }));
    ck_assert_uint_eq(app.epochs, 0);
    ck_assert(app_only_loads(&app));
    app_data_take_keys(&data, keys_from(keys));
    ck_assert_str_eq(data.format, "csv");
    ck_assert_str_eq(data.label_column, "2");
    ck_assert_str_eq(data.categorical[1], "1");
    ck_assert_ptr_null(data.categorical[2]);
    ck_assert_uint_eq(data.hash_bits, 20);
    app_end(&app, NULL);

    ck_assert(parse(&app, (const char *const[]){
                              "--load=a", "--test=b", "--train=c", "--format=text",
                              "--label-column=", "--hash-bits=9", "--categorical=1", NULL }));
    ck_assert(!app_only_loads(&app));
    app_data_take_keys(&data, keys_from(keys));
    ck_assert_str_eq(data.format, "text");
    ck_assert_str_eq(data.label_column, "");
    ck_assert_str_eq(data.categorical[0], "1");
    ck_assert_uint_eq(data.hash_bits, 9);
    app_end(&app, NULL);
}
END_TEST

START_TEST(a_folder_for_caches_is_made)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-app-data-XXXXXX", NULL);
    g_autofree char *rows = g_build_filename(dir, "rows", NULL);
    g_autofree char *caches = g_build_filename(dir, "caches", NULL);
    g_autoptr(GError) error = NULL;
    App app;

    ck_assert(g_file_set_contents(rows, "1 1:1\n", -1, NULL));
    ck_assert(parse(&app, (const char *const[]){ "--train", rows, "--cache", caches, NULL }));
    g_autoptr(RubatoDataset) dataset = app_data_open_unlabelled(&data, rows, &error);
    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "");
    GDir *made = g_dir_open(caches, 0, NULL);
    ck_assert_ptr_nonnull(made);
    g_autofree char *cache = g_build_filename(caches, g_dir_read_name(made), NULL);
    g_dir_close(made);
    ck_assert_int_eq(g_unlink(cache), 0);
    ck_assert_int_eq(g_rmdir(caches), 0);
    ck_assert_int_eq(g_unlink(rows), 0);
    ck_assert_int_eq(g_rmdir(dir), 0);
    app_end(&app, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app data");
    TCase *cases = tcase_create("data");

    tcase_add_test(cases, data_flags_not_given_have_their_defaults);
    tcase_add_test(cases, data_flags_given_are_taken);
    tcase_add_test(cases, a_cache_lies_beside_its_input_or_nowhere);
    tcase_add_test(cases, a_model_that_only_predicts_needs_no_rows_to_train_on);
    tcase_add_loop_test(cases, data_flags_that_are_wrong_are_refused_with_a_reason, 0,
                        (int)G_N_ELEMENTS(bad_flags));
    tcase_add_test(cases, files_are_opened_as_the_flags_say);
    tcase_add_test(cases, images_have_the_labels_of_the_file_beside_them);
    tcase_add_test(cases, images_of_several_files_are_refused_where_labels_matter);
    tcase_add_test(cases, rows_that_a_model_does_not_know_are_refused);
    tcase_add_test(cases, rows_to_predict_may_lack_the_label);
    tcase_add_test(cases, what_no_flag_says_of_rows_is_as_the_loaded_model_has_it);
    tcase_add_test(cases, a_folder_for_caches_is_made);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
