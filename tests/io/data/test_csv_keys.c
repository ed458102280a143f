/* CSV whose keys must mean the same as in a model: columns with and without the label, and what is
 * refused. */
#include <string.h>

#include "io/data/formats/text_hash.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

static const char *const model_names[] = { "town", "age", "paid", "job", NULL };
static const uint32_t town_and_job[] = { 0, 3 };
static const char *const zero_and_three[] = { "0", "3", NULL };
static const char *const zero_alone[] = { "0", NULL };

static const RubatoDataKeys of_model = { .format = "csv",
                                         .hash_bits = 64,
                                         .n_columns = 4,
                                         .column_names = model_names,
                                         .label_column = 2,
                                         .n_categorical_columns = 2,
                                         .categorical_columns = town_and_job };

static const RubatoDataKeys of_model_without_names = { .format = "csv",
                                                       .hash_bits = 64,
                                                       .n_columns = 4,
                                                       .label_column = 2,
                                                       .n_categorical_columns = 2,
                                                       .categorical_columns = town_and_job };

static RubatoDataSpec like_model(const RubatoDataKeys *keys, const char *label_column)
{
    return (RubatoDataSpec){ .format = "csv",
                             .label_column = label_column,
                             .skip_labels = true,
                             .categorical_columns = zero_and_three,
                             .keys = keys };
}

static void check_like_model(const RubatoRows *rows)
{
    ck_assert_uint_eq(rows->n_rows, 1);
    check_row(rows, 0, 0, 3,
              (RubatoKey[]){ text_hash("Rome", 4, 0, 0), 1, text_hash("smith", 5, 3, 0) },
              (uint32_t[]){ 0, 1, 3 }, (float[]){ 1, 50, 1 });
}

/* Texts that all hold one row of the model's columns, whatever is with the label. */
static const struct {
    const RubatoDataKeys *keys;
    const char *label_column;
    const char *text;
} like_models[] = {
    { &of_model, NULL, "town,age,paid,job\nRome,50,1,smith\n" },
    { &of_model, "", "town,age,paid,job\nRome,50,,smith\n" },
    { &of_model, "paid", "town,age,paid,job\nRome,50,nobody knows,smith\n" },
    { &of_model, "2", "town,age,paid,job\nRome,50,\"?\",smith\n" },
    { &of_model, NULL, "Rome,50,1,smith\n" },
    { &of_model, NULL, "Rome,50,?,smith\n" },
    { &of_model, NULL, "town,age,job\nRome,50,smith\n" },
    { &of_model, "", "town,age,job\nRome,50,smith" },
    { &of_model, "2", "town,age,job\r\nRome,50,smith\r\n" },
    { &of_model, "paid", "town,age,job\nRome,50,smith\n" },
    { &of_model, "", "Rome,50,smith\n" },
    { &of_model_without_names, NULL, "Rome,50,1,smith\n" },
    { &of_model_without_names, NULL, "a,b,c,d\nRome,50,1,smith\n" },
    { &of_model_without_names, "", "Rome,50,smith\n" },
    { &of_model_without_names, "", "a,b,d\nRome,50,smith\n" },
};

START_TEST(csv_has_the_keys_of_a_model_with_and_without_the_label)
{
    const RubatoDataSpec spec = like_model(like_models[_i].keys, like_models[_i].label_column);
    g_autoptr(RubatoRows) rows = load_good(&spec, like_models[_i].text);

    check_like_model(rows);
}
END_TEST

START_TEST(csv_may_lack_a_label_at_either_end)
{
    RubatoDataKeys keys = { .format = "csv", .n_columns = 3 };
    RubatoDataSpec spec = {
        .format = "csv", .label_column = "", .skip_labels = true, .keys = &keys
    };
    g_autoptr(RubatoRows) first = load_good(&spec, "7,8\n");

    keys.label_column = 2;
    g_autoptr(RubatoRows) last = load_good(&spec, "7,8\n");
    check_row(first, 0, 0, 2, (RubatoKey[]){ 1, 2 }, (uint32_t[]){ 1, 2 }, (float[]){ 7, 8 });
    check_row(last, 0, 0, 2, (RubatoKey[]){ 0, 1 }, (uint32_t[]){ 0, 1 }, (float[]){ 7, 8 });
}
END_TEST

/* The places are the model's, whatever words the rows have. */
START_TEST(csv_labels_have_the_places_of_the_models_words)
{
    static const char *const words[] = { "eggs", "ham", "spam", NULL };
    const RubatoDataKeys keys = {
        .format = "csv", .n_columns = 2, .n_label_words = 3, .label_words = words
    };
    const RubatoDataSpec spec = { .format = "csv", .keys = &keys };
    g_autoptr(RubatoRows) rows = load_good(&spec, "spam,1\nham,2\n");

    ck_assert(rows->label[0] == 2 && rows->label[1] == 1);
    check_refused(&spec, "spam,1\nbacon,2\n", 15,
                  "rows:2:1: expected one of the labels of the model's rows in column 0, found "
                  "\"bacon\"");
}
END_TEST

static void check_mismatch(const RubatoDataSpec *spec, const char *text, const char *message)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoRows) rows = load_text(spec, text, strlen(text), &error);

    ck_assert_msg(rows == NULL, "\"%s\" was taken", text);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH), "%s",
                  error->message);
    ck_assert_msg(g_str_has_prefix(error->message, message), "%s", error->message);
}

static const struct {
    const RubatoDataKeys *keys;
    const char *label_column;
    const char *text;
    const char *message;
} unlike_models[] = {
    { &of_model, NULL, "age,town,paid,job\n",
      "rows:1:1: expected \"town\", the name of column 0 in the model's rows, found \"age\"" },
    { &of_model, "paid", "paid,town,age,job\n",
      "rows:1:1: expected \"town\", the name of column 0 in the model's rows, found \"paid\"" },
    { &of_model, NULL, "town,age,job,paid\n",
      "rows:1:10: expected \"paid\", the name of column 2 in the model's rows, found \"job\"" },
    { &of_model, NULL, "town,paid,job\n",
      "rows:1:6: expected \"age\", the name of column 1 in the model's rows, found \"paid\"" },
    { &of_model, NULL, "town,age,paid,job,more\n",
      "rows:1:1: expected 4 columns, or all but the label, as in the model's rows, found 5" },
    { &of_model, NULL, "town,age\n",
      "rows:1:1: expected 4 columns, or all but the label, as in the model's rows, found 2" },
    { &of_model, NULL, "Rome,50,smith\n",
      "rows:1:1: expected 4 columns, as in the model's rows, found 3, and no names to show" },
    { &of_model, "2", "Rome,50,smith\n", "rows:1:1: expected 4 columns, as in the model's rows" },
    { &of_model_without_names, NULL, "a,b,d\nRome,50,smith\n",
      "rows:1:1: expected 4 columns, as in the model's rows, found 3" },
    { &of_model, "age", "town,age,paid,job\n",
      "rows:1:1: expected the label in column 2, as in the model's rows, found it in column 1" },
};

START_TEST(csv_refuses_other_columns_than_a_model_has)
{
    const RubatoDataSpec spec = like_model(unlike_models[_i].keys, unlike_models[_i].label_column);

    check_mismatch(&spec, unlike_models[_i].text, unlike_models[_i].message);
}
END_TEST

#define MODEL_TEXT "town,age,paid,job\nRome,50,1,smith\n"

/* Rows to train and to test on, whose labels are used. */
START_TEST(csv_with_labels_agrees_with_a_model_in_every_column)
{
    RubatoDataSpec spec = like_model(&of_model, "paid");
    RubatoDataKeys none = of_model;

    spec.skip_labels = false;
    g_autoptr(RubatoRows) rows = load_good(&spec, MODEL_TEXT);
    ck_assert(rows->label[0] == 1);
    ck_assert_uint_eq(rows->key[2], text_hash("smith", 5, 3, 0));
    check_mismatch(&spec, "town,age,job\nRome,50,smith\n",
                   "rows:1:1: expected 4 columns, as in the model's rows, found 3");
    spec.label_column = "1";
    check_mismatch(&spec, MODEL_TEXT, "rows:1:1: expected the label in column 2");
    spec.label_column = "";
    check_mismatch(&spec, MODEL_TEXT,
                   "rows:1:1: expected the label in column 2, as in the model's rows, found none");
    none.label_column = RUBATO_NO_COLUMN;
    spec.keys = &none;
    spec.label_column = "paid";
    check_mismatch(&spec, MODEL_TEXT,
                   "rows:1:1: expected no label, as in the model's rows, found it in column 2");
}
END_TEST

START_TEST(csv_refuses_other_categories_than_a_model_has)
{
    static const char *const first_two[] = { "0", "1", "3", NULL };
    RubatoDataSpec spec = like_model(&of_model, NULL);

    spec.hash_bits = 20;
    check_mismatch(&spec, MODEL_TEXT,
                   "rows: expected hashes of 64 bits, as of the model's rows, found 20");
    spec.hash_bits = 64;
    g_autoptr(RubatoRows) rows = load_good(&spec, MODEL_TEXT);
    check_like_model(rows);
    spec.categorical_columns = zero_alone;
    check_mismatch(&spec, MODEL_TEXT,
                   "rows:1:15: expected column 3 to be categorical, as in the model's rows, found");
    spec.categorical_columns = first_two;
    check_mismatch(&spec, MODEL_TEXT,
                   "rows:1:6: expected column 1 to be of numbers, as in the model's rows, found");
}
END_TEST

START_TEST(rows_of_another_format_than_a_models_are_refused)
{
    RubatoDataSpec spec = { .format = "libsvm", .keys = &of_model };
    const RubatoDataKeys of_text = { .format = "text", .hash_bits = 20 };

    check_mismatch(&spec, "1 1:1\n",
                   "rows: expected rows of the format csv, as the model's, found libsvm");
    spec = (RubatoDataSpec){ .format = "text", .keys = &of_text, .hash_bits = 21 };
    check_mismatch(&spec, "a\n", "rows: expected hashes of 20 bits, as of the model's rows, found");
    spec.hash_bits = 20;
    g_autoptr(RubatoRows) rows = load_good(&spec, "a\n");
    ck_assert_uint_eq(rows->key[0], text_hash("a", 1, 0, 20));
}
END_TEST

START_TEST(every_csv_file_of_a_dataset_lacks_the_label_or_none_does)
{
    static const struct {
        const char *second, *message;
    } cases[] = {
        { "town,age,job\nRome,50,smith\n", NULL },
        { "Rome,50,smith\n", NULL },
        { MODEL_TEXT, "expected 3 columns, as in the first file, found 4" },
        { "town,job,age\n", "expected \"age\", the name of column 1 in the first file" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *dir = g_dir_make_tmp("rubato-csv-XXXXXX", NULL);
        g_autofree char *first = g_build_filename(dir, "first", NULL);
        g_autofree char *second = g_build_filename(dir, "second", NULL);
        RubatoDataSpec spec = like_model(&of_model, NULL);
        g_autoptr(GError) error = NULL;

        spec.paths = (const char *const[]){ first, second, NULL };
        ck_assert(g_file_set_contents(first, "town,age,job\nRome,50,smith\n", -1, NULL));
        ck_assert(g_file_set_contents(second, cases[i].second, -1, NULL));
        g_autoptr(RubatoRows) rows = rubato_dataset_load(&spec, &error);
        remove_files(dir);
        ck_assert_int_eq(rows != NULL, cases[i].message == NULL);
        if (rows != NULL) {
            ck_assert_uint_eq(rows->n_rows, 2);
            ck_assert_mem_eq(rows->key, rows->key + 3, 3 * sizeof *rows->key);
        } else {
            ck_assert_msg(strstr(error->message, cases[i].message) != NULL, "%s", error->message);
        }
    }
}
END_TEST

START_TEST(keys_that_cannot_be_are_refused)
{
    const uint32_t twice[] = { 1, 1 }, beyond[] = { 4 };
    const char *const few[] = { "a", NULL };
    RubatoDataKeys bad[] = { of_model, of_model, of_model, of_model, of_model, of_model };

    bad[0].format = NULL;
    bad[1].hash_bits = 65;
    bad[2].column_names = few;
    bad[3].label_column = 4;
    bad[4].categorical_columns = twice;
    bad[5].categorical_columns = beyond;
    bad[5].n_categorical_columns = 1;
    for (size_t i = 0; i <= G_N_ELEMENTS(bad); i++) {
        const bool is_coded = i == G_N_ELEMENTS(bad);
        RubatoDataSpec spec = like_model(is_coded ? &of_model : &bad[i], NULL);
        g_autoptr(GError) error = NULL;

        spec.categories = is_coded ? RUBATO_CATEGORIES_CODED : RUBATO_CATEGORIES_HASHED;
        ck_assert_ptr_null(load_text(&spec, "1", 1, &error));
        ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID), "%s",
                      error->message);
    }
}
END_TEST

/* A dataset accepts the description of another dataset's keys. */
START_TEST(a_dataset_says_what_its_keys_mean)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-csv-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "rows", NULL);
    RubatoDataSpec spec = like_model(NULL, "paid");

    spec.paths = (const char *const[]){ path, NULL };
    ck_assert(g_file_set_contents(path, MODEL_TEXT, -1, NULL));
    g_autoptr(RubatoDataset) rows = rubato_dataset_open(&spec, NULL);
    const RubatoDataKeys *keys = rubato_dataset_keys(rows);
    ck_assert_str_eq(keys->format, "csv");
    ck_assert_uint_eq(keys->hash_bits, 64);
    ck_assert_uint_eq(keys->n_columns, 4);
    ck_assert_str_eq(keys->column_names[3], "job");
    ck_assert_ptr_null(keys->column_names[4]);
    ck_assert_uint_eq(keys->label_column, 2);
    ck_assert_uint_eq(keys->n_categorical_columns, 2);
    ck_assert_mem_eq(keys->categorical_columns, town_and_job, sizeof town_and_job);

    ck_assert(g_file_set_contents(path, "town,age,job\nRome,50,smith\n", -1, NULL));
    spec.keys = keys;
    g_autoptr(RubatoRows) like = rubato_dataset_load(&spec, NULL);
    check_like_model(like);
    ck_assert(g_file_set_contents(path, "", -1, NULL)); /* columns that nobody knows */
    g_autoptr(RubatoDataset) empty = rubato_dataset_open(&spec, NULL);
    ck_assert_ptr_nonnull(empty);
    ck_assert_uint_eq(rubato_dataset_keys(empty)->n_columns, 0);
    remove_files(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("csv keys");
    TCase *cases = tcase_create("keys");

    tcase_add_loop_test(cases, csv_has_the_keys_of_a_model_with_and_without_the_label, 0,
                        (int)G_N_ELEMENTS(like_models));
    tcase_add_test(cases, csv_may_lack_a_label_at_either_end);
    tcase_add_test(cases, csv_labels_have_the_places_of_the_models_words);
    tcase_add_loop_test(cases, csv_refuses_other_columns_than_a_model_has, 0,
                        (int)G_N_ELEMENTS(unlike_models));
    tcase_add_test(cases, csv_with_labels_agrees_with_a_model_in_every_column);
    tcase_add_test(cases, csv_refuses_other_categories_than_a_model_has);
    tcase_add_test(cases, rows_of_another_format_than_a_models_are_refused);
    tcase_add_test(cases, every_csv_file_of_a_dataset_lacks_the_label_or_none_does);
    tcase_add_test(cases, keys_that_cannot_be_are_refused);
    tcase_add_test(cases, a_dataset_says_what_its_keys_mean);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
