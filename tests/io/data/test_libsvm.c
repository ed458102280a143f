/* libsvm and libffm: what is read, what is refused, and the place that errors name. */
#include <string.h>

#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

static const RubatoDataSpec libsvm = { .format = "libsvm" }, libffm = { .format = "libffm" };

START_TEST(libsvm_reads_rows_entries_and_labels)
{
    g_autoptr(RubatoRows) rows =
        load_good(&libsvm, "-1 0:0.5 7:-2e1\n+1\n3.25 18446744073709551615:1\n");

    ck_assert_uint_eq(rows->n_rows, 3);
    ck_assert_uint_eq(rows->n_entries, 3);
    ck_assert_uint_eq(rows->max_key, UINT64_MAX);
    ck_assert_ptr_null(rows->field);
    const size_t starts[] = { 0, 2, 2, 3 };
    ck_assert_mem_eq(rows->row_start, starts, sizeof starts);
    const RubatoKey keys[] = { 0, 7, UINT64_MAX };
    ck_assert_mem_eq(rows->key, keys, sizeof keys);
    const float values[] = { 0.5f, -20.0f, 1.0f };
    ck_assert_mem_eq(rows->value, values, sizeof values);
    const float labels[] = { -1.0f, 1.0f, 3.25f };
    ck_assert_mem_eq(rows->label, labels, sizeof labels);
}
END_TEST

/* Texts that all hold the row "1 2:3" and nothing else. */
static const char *const same_rows[] = {
    "1 2:3\n",
    "1 2:3",
    "1 2:3 \n",
    "  1\t2:3\t\n",
    "1 2:3\r\n",
    "1 2:3\r",
    "1 2:3 # x\n",
    "1 2:3#x",
    "# head\n\n 1 2:3\n\n#",
    "1. 2:+3e0\n",
    "10e-1 2:.3e1",
    "1 00002:3.0000",
    "1 2:3.000000000000000000000000",
};

START_TEST(libsvm_allows_blanks_comments_and_line_ends)
{
    for (size_t i = 0; i < G_N_ELEMENTS(same_rows); i++) {
        g_autoptr(RubatoRows) rows = load_good(&libsvm, same_rows[i]);

        ck_assert_msg(rows->n_rows == 1 && rows->n_entries == 1 && rows->key[0] == 2 &&
                          rows->label[0] == 1.0f && rows->value[0] == 3.0f,
                      "other rows in \"%s\"", same_rows[i]);
    }
}
END_TEST

static const struct {
    const char *text;
    const char *message; /* what it must begin with */
} bad_rows[] = {
    { "", "rows: expected a row" },
    { "\n# nothing\n", "rows: expected a row" },
    { "1 2:3\nyes 1:1\n", "rows:2:1: expected a finite number as label, found \"yes\"" },
    { "hello world\n", "rows:1:1: expected a finite number as label, found \"hello\"" },
    { "yes 1:1\nno 2:1\n3:1 4:1\n",
      "rows:3:1: expected a word as label, without colon and comma, found \"3:1\"" },
    { "yes 1:1\nno 2:1\nyes,no 4:1\n",
      "rows:3:1: expected a word as label, without colon and comma, found \"yes,no\"" },
    { "1:1 2:1\n", "rows:1:1: expected a finite number as label, found \"1:1\"" },
    { "1,2 1:1\n", "rows:1:1: expected a finite number as label, found \"1,2\"" },
    { "nan 1:1\n", "rows:1:1: expected a finite number as label, found \"nan\"" },
    { "1e39 1:1\n", "rows:1:1: expected a number within the range of a float, found \"1e39\"" },
    { "1 1:1 18446744073709551616:1\n",
      "rows:1:7: expected an index up to 18446744073709551615, found" },
    { "1 18446744073709551615:1 18446744073709551615:1\n",
      "rows:1:26: expected an index above 18446744073709551615" },
    { "1 -3:1\n", "rows:1:3: expected index:value, found \"-3:1\"" },
    { "1 1.5:1\n", "rows:1:3: expected index:value, found \"1.5:1\"" },
    { "1 3\n", "rows:1:3: expected index:value, found \"3\"" },
    { "1 3 :1\n", "rows:1:3: expected index:value, found \"3\"" },
    { "1 qid:3 1:1\n", "rows:1:3: expected index:value, found \"qid:3\"" },
    { "1 3:1 2:1\n", "rows:1:7: expected an index above 3 (they must ascend), found \"2:1\"" },
    { "1 3:1 3:1\n", "rows:1:7: expected an index above 3 (they must ascend), found \"3:1\"" },
    { "1 3:\n", "rows:1:5: expected a finite number as value, found the end of the line" },
    { "1 3: 4\n", "rows:1:5: expected a finite number as value, found a blank" },
    { "1 3:#\n", "rows:1:5: expected a finite number as value, found a comment" },
    { "1 3:x\n", "rows:1:5: expected a finite number as value, found \"x\"" },
    { "1 3:1x\n", "rows:1:5: expected a finite number as value, found \"1x\"" },
    { "1 3:0x10\n", "rows:1:5: expected a finite number as value, found \"0x10\"" },
    { "1 3:inf\n", "rows:1:5: expected a finite number as value, found \"inf\"" },
    { "1 3:-Infinity\n", "rows:1:5: expected a finite number as value, found \"-Infinity\"" },
    { "1 3:NaN\n", "rows:1:5: expected a finite number as value, found \"NaN\"" },
    { "1 3:-1e999999999999\n", "rows:1:5: expected a number within the range of a float" },
    { "1 3:1,5\n", "rows:1:5: expected a finite number as value, found \"1,5\"" },
    { "1 3:1e\n", "rows:1:5: expected a finite number as value, found \"1e\"" },
    { "1 3:.\n", "rows:1:5: expected a finite number as value, found \".\"" },
    { "1 3:1\r2\n",
      "rows:1:7: expected the end of the line behind a carriage return, found \"2\"" },
    { "1 3:1 \x01\xff\n", "rows:1:7: expected index:value, found \"\\001\\377\"" },
    { "\rx\n", "rows:1:2: expected the end of the line behind a carriage return, found \"x\"" },
    { "1 2:3\n\x1f\x8b\n", "rows:2:1: expected a finite number as label, found \"\\037\\213\"" },
};

START_TEST(libsvm_refuses_with_line_and_column)
{
    for (size_t i = 0; i < G_N_ELEMENTS(bad_rows); i++)
        check_refused(&libsvm, bad_rows[i].text, strlen(bad_rows[i].text), bad_rows[i].message);
}
END_TEST

START_TEST(libsvm_refuses_zero_bytes)
{
    check_refused(&libsvm, "1 2:3\n\0", 7,
                  "rows:2:1: expected a finite number as label, found a zero byte");
}
END_TEST

/* Both formats: words as labels are places among all words, in the order of their bytes. */
START_TEST(sparse_labels_may_be_words)
{
    static const struct {
        const RubatoDataSpec *spec;
        const char *text;
    } files[] = {
        { &libsvm, "spam 1:1 3:2\n# nothing\nham\n\n 7 2:1\nno-1 2:1 # ham\nspam 1:1" },
        { &libffm, "spam 0:1:1 0:3:2\nham\n7 0:2:1\r\nno-1 0:2:1\nspam 0:1:1\n" },
    };
    const float places[] = { 3, 1, 0, 2, 3 };
    g_autoptr(RubatoRows) rows = load_good(files[_i].spec, files[_i].text);

    ck_assert_uint_eq(rows->n_rows, 5);
    ck_assert_mem_eq(rows->label, places, sizeof places);
    ck_assert_uint_eq(rows->n_entries, 5);
}
END_TEST

START_TEST(sparse_labels_have_the_places_of_the_models_words)
{
    static const char *const words[] = { "1", "b", "d", NULL };
    const RubatoDataKeys keys = { .format = "libsvm",
                                  .label_column = RUBATO_NO_COLUMN,
                                  .n_label_words = 3,
                                  .label_words = words };
    const RubatoDataSpec spec = { .format = "libsvm", .keys = &keys };
    const float places[] = { 2, 0, 1 };
    g_autoptr(RubatoRows) rows = load_good(&spec, "d 1:1\n1 1:1\nb 1:1\n");

    ck_assert_mem_eq(rows->label, places, sizeof places);
    check_refused(&spec, "1 1:1\n2 1:1\n", strlen("1 1:1\n2 1:1\n"),
                  "rows:2:1: expected one of the labels of the model's rows, found \"2\"");
}
END_TEST

/* Of a model whose labels are numbers, so are those of all rows. */
START_TEST(sparse_labels_are_numbers_where_the_models_are)
{
    const RubatoDataKeys keys = { .format = "libsvm", .label_column = RUBATO_NO_COLUMN };
    const RubatoDataSpec spec = { .format = "libsvm", .keys = &keys };

    check_refused(&spec, "a 1:1\n", strlen("a 1:1\n"),
                  "rows:1:1: expected a finite number as label, found \"a\"");
}
END_TEST

START_TEST(sparse_labels_that_are_skipped_may_be_anything_or_missing)
{
    const RubatoDataSpec svm = { .format = "libsvm", .skip_labels = true },
                         ffm = { .format = "libffm", .skip_labels = true };
    g_autoptr(RubatoRows) rows = load_good(&svm, "? 1:1\n2:1 3:1\n7\nnan 1:1\n");
    const size_t starts[] = { 0, 1, 3, 3, 4 };
    const float none[] = { 0, 0, 0, 0 };

    ck_assert_uint_eq(rows->n_rows, 4);
    ck_assert_mem_eq(rows->row_start, starts, sizeof starts);
    ck_assert_mem_eq(rows->label, none, sizeof none);
    g_autoptr(RubatoRows) fields = load_good(&ffm, "0:2:1 1:3:1\na,b 0:1:1\n");
    ck_assert_uint_eq(fields->n_rows, 2);
    ck_assert_uint_eq(fields->n_entries, 3);
}
END_TEST

/* A row of many blocks, and rows across the borders of blocks. */
START_TEST(libsvm_reads_lines_of_any_length)
{
    g_autoptr(GString) text = g_string_new(NULL);
    const uint32_t n_long = 100000, n_short = 20000;

    g_string_append(text, "1");
    for (uint32_t i = 1; i <= n_long; i++)
        g_string_append_printf(text, " %u:%u", i, i % 97);
    g_string_append_c(text, '\n');
    for (uint32_t i = 0; i < n_short; i++)
        g_string_append_printf(text, "%u %u:%u\n", i % 3, i + 1, i % 89);

    g_autoptr(RubatoRows) rows = load_good(&libsvm, text->str);
    ck_assert_uint_eq(rows->n_rows, n_short + 1);
    ck_assert_uint_eq(rows->row_start[1], n_long);
    for (uint32_t i = 0; i < n_long; i++)
        require_msg(rows->key[i] == i + 1 && rows->value[i] == (float)((i + 1) % 97), "%u", i);
    for (uint32_t i = 0; i < n_short; i++)
        require_msg(rows->row_start[i + 2] == n_long + i + 1 &&
                        rows->label[i + 1] == (float)(i % 3) && rows->key[n_long + i] == i + 1 &&
                        rows->value[n_long + i] == (float)(i % 89),
                    "row %u", i);
}
END_TEST

START_TEST(libsvm_tells_the_line_of_a_fault_far_inside)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (int i = 1; i < 100000; i++)
        g_string_append(text, "1 1:1 22:22 333:333\n");
    g_string_append(text, "1 1:1 22:2z\n");
    check_refused(&libsvm, text->str, text->len,
                  "rows:100000:10: expected a finite number as value, found \"2z\"");
}
END_TEST

/* ---- libffm ---- */

START_TEST(libffm_reads_fields_indices_and_values)
{
    g_autoptr(RubatoRows) rows = load_good(
        &libffm, "1 0:5:1 3:123456:1 3:5:0.25\n# x\n-1\n0 4294967294:18446744073709551615:2 "
                 "123456:7:1 # y\n");
    const size_t starts[] = { 0, 3, 3, 5 };
    const RubatoKey keys[] = { 5, 123456, 5, UINT64_MAX, 7 };
    const uint32_t fields[] = { 0, 3, 3, UINT32_MAX - 1, 123456 };
    const float values[] = { 1, 1, 0.25f, 2, 1 };
    const float labels[] = { 1, -1, 0 };

    ck_assert_uint_eq(rows->n_rows, 3);
    ck_assert_uint_eq(rows->n_entries, 5);
    ck_assert_uint_eq(rows->n_fields, UINT32_MAX);
    ck_assert_mem_eq(rows->row_start, starts, sizeof starts);
    ck_assert_mem_eq(rows->key, keys, sizeof keys);
    ck_assert_mem_eq(rows->field, fields, sizeof fields);
    ck_assert_mem_eq(rows->value, values, sizeof values);
    ck_assert_mem_eq(rows->label, labels, sizeof labels);
}
END_TEST

static const struct {
    const char *text;
    const char *message;
} bad_fields[] = {
    { "1 0:5\n", "rows:1:3: expected field:index:value, found \"0:5\"" },
    { "1 0:5:\n", "rows:1:7: expected a finite number as value, found the end of the line" },
    { "1 0::1\n", "rows:1:3: expected field:index:value, found \"0::1\"" },
    { "1 :5:1\n", "rows:1:3: expected field:index:value, found \":5:1\"" },
    { "1 0:5:1:2\n", "rows:1:7: expected a finite number as value, found \"1:2\"" },
    { "1 -1:5:1\n", "rows:1:3: expected field:index:value, found \"-1:5:1\"" },
    { "1 1:1:1\n0 4294967295:5:1\n", "rows:2:3: expected a field up to 4294967294, found" },
    { "1 1:18446744073709551616:1\n", "rows:1:3: expected an index up to 18446744073709551615" },
    { "1 1:1:1 2:2:inf\n", "rows:1:13: expected a finite number as value, found \"inf\"" },
    { "1 1:1:9e99\n", "rows:1:7: expected a number within the range of a float, found \"9e99\"" },
    { "1 1:1:1\nx 1:1:1\n", "rows:2:1: expected a finite number as label, found \"x\"" },
};

START_TEST(libffm_refuses_with_line_and_column)
{
    for (size_t i = 0; i < G_N_ELEMENTS(bad_fields); i++)
        check_refused(&libffm, bad_fields[i].text, strlen(bad_fields[i].text),
                      bad_fields[i].message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("libsvm");
    TCase *svm = tcase_create("libsvm"), *ffm = tcase_create("libffm");

    tcase_add_test(svm, libsvm_reads_rows_entries_and_labels);
    tcase_add_test(svm, libsvm_allows_blanks_comments_and_line_ends);
    tcase_add_test(svm, libsvm_refuses_with_line_and_column);
    tcase_add_test(svm, libsvm_refuses_zero_bytes);
    tcase_add_loop_test(svm, sparse_labels_may_be_words, 0, 2);
    tcase_add_test(svm, sparse_labels_have_the_places_of_the_models_words);
    tcase_add_test(svm, sparse_labels_are_numbers_where_the_models_are);
    tcase_add_test(svm, sparse_labels_that_are_skipped_may_be_anything_or_missing);
    tcase_add_test(svm, libsvm_reads_lines_of_any_length);
    tcase_add_test(svm, libsvm_tells_the_line_of_a_fault_far_inside);
    tcase_add_test(ffm, libffm_reads_fields_indices_and_values);
    tcase_add_test(ffm, libffm_refuses_with_line_and_column);
    suite_add_tcase(suite, svm);
    suite_add_tcase(suite, ffm);
    return run_suite(suite);
}
