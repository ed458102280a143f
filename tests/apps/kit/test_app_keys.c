/* The meaning of keys, as it is saved with a model and shown to the user. */
#include <stdlib.h>
#include <string.h>

#include "apps/kit/model/app_keys.h"
#include "tests/support/runner.h"

static const char *const names[] = { "y", "age", "town", NULL };
static const char *const umlauts[] = { "stra\xc3\x9f"
                                       "e",
                                       "\"", "", NULL };
static const char *const latin1[] = { "stra\xdf"
                                      "e",
                                      "\xc3\x9f", "town", NULL };
static const uint32_t last_two[] = { 1, 2 };

static const char *const words[] = { "\xc3\x9c", "\xdc", NULL };

static const RubatoDataKeys kept[] = {
    { .format = "libsvm", .label_column = RUBATO_NO_COLUMN },
    { .format = "text", .hash_bits = 20, .label_column = RUBATO_NO_COLUMN },
    { .format = "ratings", .fields_in_keys = 2, .label_column = RUBATO_NO_COLUMN },
    { .format = "csv", .n_columns = 3, .column_names = names, .label_column = 2 },
    { .format = "csv", .n_columns = 3, .column_names = umlauts },
    { .format = "csv", .n_columns = 3, .column_names = latin1 },
    { .format = "csv", .n_columns = 3, .label_column = RUBATO_NO_COLUMN },
    { .format = "csv", .n_columns = 3, .n_label_words = 2, .label_words = words },
    { .format = "libsvm",
      .label_column = RUBATO_NO_COLUMN,
      .n_label_words = 2,
      .label_words = words },
    { .format = "csv",
      .hash_bits = 64,
      .n_columns = 3,
      .n_categorical_columns = 2,
      .categorical_columns = last_two },
};

static char *write_keys(const RubatoDataKeys *keys)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    app_keys_write(builder, keys);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    return json_to_string(root, FALSE);
}

static RubatoDataKeys *read_keys(const char *text)
{
    g_autoptr(JsonNode) root = json_from_string(text, NULL);

    ck_assert_msg(root != NULL, "no JSON: %s", text);
    return app_keys_read(json_node_get_object(root));
}

START_TEST(keys_are_read_as_they_were_written)
{
    const RubatoDataKeys *keys = &kept[_i];
    g_autofree char *text = write_keys(keys);
    g_autoptr(RubatoDataKeys) read = read_keys(text);

    ck_assert(g_utf8_validate(text, -1, NULL));
    ck_assert_msg(read != NULL, "%s", text);
    ck_assert_str_eq(read->format, keys->format);
    ck_assert_uint_eq(read->hash_bits, keys->hash_bits);
    ck_assert_uint_eq(read->fields_in_keys, keys->fields_in_keys);
    ck_assert_uint_eq(read->n_columns, keys->n_columns);
    ck_assert_uint_eq(read->label_column, keys->label_column);
    ck_assert_uint_eq(read->n_label_words, keys->n_label_words);
    for (uint32_t i = 0; i < keys->n_label_words; i++)
        ck_assert_str_eq(read->label_words[i], keys->label_words[i]);
    ck_assert_uint_eq(read->n_categorical_columns, keys->n_categorical_columns);
    for (uint32_t i = 0; i < keys->n_categorical_columns; i++)
        ck_assert_uint_eq(read->categorical_columns[i], keys->categorical_columns[i]);
    ck_assert_int_eq(read->column_names != NULL, keys->column_names != NULL);
    for (uint32_t i = 0; keys->column_names != NULL && i <= keys->n_columns; i++)
        ck_assert_pstr_eq(read->column_names[i], keys->column_names[i]);
}
END_TEST

static const char *const bad_keys[] = {
    "{}",
    "{\"format\":1}",
    "{\"format\":\"text\",\"hash_bits\":65}",
    "{\"format\":\"text\",\"hash_bits\":-1}",
    "{\"format\":\"ratings\",\"fields_in_keys\":-1}",
    "{\"format\":\"csv\",\"columns\":\"2\"}",
    "{\"format\":\"csv\",\"columns\":4294967295}",
    "{\"format\":\"csv\",\"columns\":2}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[],"
    "\"label_words\":[\"b\",\"a\"]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[],\"label_words\":[]}",
    "{\"format\":\"libsvm\",\"label_words\":[\"b\",\"a\"]}",
    "{\"format\":\"libsvm\",\"label_words\":[]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":2,\"categorical\":[]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[0]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[2]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[\"1\"]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[[1]]}",
    "{\"format\":\"csv\",\"columns\":3,\"label\":0,\"categorical\":[2,1]}",
    "{\"format\":\"csv\",\"columns\":2,\"label\":0,\"categorical\":[],\"names\":[\"a\"]}",
    "{\"format\":\"csv\",\"columns\":1,\"label\":0,\"categorical\":[],\"names\":[1]}",
    "{\"format\":\"csv\",\"columns\":1,\"label\":0,\"categorical\":[],\"names\":[[]]}",
    "{\"format\":\"csv\",\"columns\":1,\"label\":0,\"categorical\":[],\"names\":\"a\"}",
    "{\"format\":\"csv\",\"columns\":1,\"label\":0,\"categorical\":[],\"names\":[\"a\"],"
    "\"names_in\":\"koi8-r\"}",
    "{\"format\":\"csv\",\"columns\":1,\"label\":0,\"categorical\":[],\"names\":[\"\\u0100\"],"
    "\"names_in\":\"iso-8859-1\"}",
};

START_TEST(what_keys_cannot_be_is_not_read)
{
    ck_assert_msg(read_keys(bad_keys[_i]) == NULL, "%s was taken", bad_keys[_i]);
}
END_TEST

static const struct {
    RubatoDataKeys keys;
    const char *text;
} texts[] = {
    { { .format = "libsvm", .label_column = RUBATO_NO_COLUMN }, "--format libsvm" },
    { { .format = "text", .hash_bits = 20 }, "--format text --hash-bits 20" },
    { { .format = "csv", .n_columns = 3, .column_names = names, .label_column = 1 },
      "3 columns, y, age, town; --format csv --label-column age" },
    { { .format = "csv", .n_columns = 3, .label_column = RUBATO_NO_COLUMN },
      "3 columns without names; --format csv --label-column ''" },
    { { .format = "csv",
        .hash_bits = 9,
        .n_columns = 3,
        .column_names = names,
        .n_categorical_columns = 2,
        .categorical_columns = last_two },
      "3 columns, y, age, town; --format csv --label-column y --categorical age,town "
      "--hash-bits 9" },
    { { .format = "csv",
        .hash_bits = 64,
        .n_columns = 3,
        .n_categorical_columns = 2,
        .categorical_columns = last_two },
      "3 columns without names; --format csv --label-column 0 --categorical 1,2 --hash-bits 64" },
};

START_TEST(keys_are_told_in_columns_and_flags)
{
    g_autofree char *text = app_keys_text(&texts[_i].keys);

    ck_assert_str_eq(text, texts[_i].text);
}
END_TEST

START_TEST(of_many_names_some_are_told)
{
    const char *many[31] = { NULL };

    for (int i = 0; i < 30; i++)
        many[i] = "n";
    g_autofree char *text =
        app_keys_text(&(RubatoDataKeys){ .format = "csv", .n_columns = 30, .column_names = many });
    ck_assert_str_eq(text,
                     "30 columns, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, …; "
                     "--format csv --label-column n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app keys");
    TCase *cases = tcase_create("keys");

    tcase_add_loop_test(cases, keys_are_read_as_they_were_written, 0, (int)G_N_ELEMENTS(kept));
    tcase_add_loop_test(cases, what_keys_cannot_be_is_not_read, 0, (int)G_N_ELEMENTS(bad_keys));
    tcase_add_loop_test(cases, keys_are_told_in_columns_and_flags, 0, (int)G_N_ELEMENTS(texts));
    tcase_add_test(cases, of_many_names_some_are_told);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
