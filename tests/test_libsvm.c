/* The libsvm reader: what it reads, what it refuses and where it says the fault is. */
#include "io/data/libsvm.h"

#include <glib/gstdio.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/data/decimal.h"
#include "tests/support/runner.h"

static RubatoSparseRows *read_text(const char *text, size_t size, GError **error)
{
    g_autoptr(ByteSource) source = byte_source_new_memory("rows", text, size);

    return libsvm_read(source, error);
}

static RubatoSparseRows *read_good(const char *text)
{
    g_autoptr(GError) error = NULL;
    RubatoSparseRows *rows = read_text(text, strlen(text), &error);

    ck_assert_msg(rows != NULL, "\"%s\" was refused: %s", text,
                  error != NULL ? error->message : "");
    return rows;
}

START_TEST(libsvm_reads_rows_entries_and_labels)
{
    g_autoptr(RubatoSparseRows) rows = read_good("-1 1:0.5 7:-2e1\n+1\n3.25 4294967295:1\n");

    ck_assert_uint_eq(rows->n_rows, 3);
    ck_assert_uint_eq(rows->n_entries, 3);
    ck_assert_uint_eq(rows->n_columns, UINT32_MAX);
    const size_t starts[] = { 0, 2, 2, 3 };
    ck_assert_mem_eq(rows->row_start, starts, sizeof starts);
    const uint32_t indices[] = { 1, 7, UINT32_MAX };
    ck_assert_mem_eq(rows->index, indices, sizeof indices);
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
    g_autoptr(RubatoSparseRows) rows = read_good(same_rows[_i]);

    ck_assert_uint_eq(rows->n_rows, 1);
    ck_assert_uint_eq(rows->n_entries, 1);
    ck_assert_uint_eq(rows->n_columns, 2);
    ck_assert(rows->label[0] == 1.0f);
    ck_assert(rows->value[0] == 3.0f);
}
END_TEST

static const struct {
    const char *text;
    const char *message; /* what it must begin with */
} bad_rows[] = {
    { "", "rows:1:1: expected a row" },
    { "\n# nothing\n", "rows:3:1: expected a row" },
    { "yes 1:1\n", "rows:1:1: expected a finite number as label, found \"yes\"" },
    { "1:1 2:1\n", "rows:1:1: expected a finite number as label, found \"1:1\"" },
    { "1,2 1:1\n", "rows:1:1: expected a finite number as label, found \"1,2\"" },
    { "nan 1:1\n", "rows:1:1: expected a finite number as label, found \"nan\"" },
    { "1e39 1:1\n", "rows:1:1: expected a number within the range of a float, found \"1e39\"" },
    { "1 1:1\n1 0:1\n", "rows:2:3: expected an index from 1 to 4294967295, found \"0:1\"" },
    { "1 1:1 4294967296:1\n", "rows:1:7: expected an index from 1 to 4294967295, found" },
    { "1 99999999999999999999999999:1\n", "rows:1:3: expected an index from 1 to 4294967295" },
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
    { "1 2:3\n\x1f\x8b\n", "rows:2:1: expected a finite number as label, found \"\\037\\213\"" },
};

START_TEST(libsvm_refuses_with_line_and_column)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(read_text(bad_rows[_i].text, strlen(bad_rows[_i].text), &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(g_str_has_prefix(error->message, bad_rows[_i].message),
                  "\"%s\" does not begin with \"%s\"", error->message, bad_rows[_i].message);
}
END_TEST

START_TEST(libsvm_refuses_zero_bytes)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(read_text("1 2:3\n\0", 7, &error));
    ck_assert_str_eq(error->message,
                     "rows:2:1: expected a finite number as label, found a zero byte");
}
END_TEST

/* A row of many blocks, and rows across the borders of blocks. */
START_TEST(libsvm_reads_lines_of_any_length)
{
    g_autoptr(GString) text = g_string_new(NULL);
    const uint32_t n_long = 200000, n_short = 50000;

    g_string_append(text, "1");
    for (uint32_t i = 1; i <= n_long; i++)
        g_string_append_printf(text, " %u:%u", i, i % 97);
    g_string_append_c(text, '\n');
    for (uint32_t i = 0; i < n_short; i++)
        g_string_append_printf(text, "%u %u:%u\n", i % 3, i + 1, i % 89);

    g_autoptr(RubatoSparseRows) rows = read_good(text->str);
    ck_assert_uint_eq(rows->n_rows, n_short + 1);
    ck_assert_uint_eq(rows->row_start[1], n_long);
    for (uint32_t i = 0; i < n_long; i++)
        ck_assert(rows->index[i] == i + 1 && rows->value[i] == (float)((i + 1) % 97));
    for (uint32_t i = 0; i < n_short; i++)
        ck_assert(rows->row_start[i + 2] == n_long + i + 1 &&
                  rows->label[i + 1] == (float)(i % 3) && rows->index[n_long + i] == i + 1 &&
                  rows->value[n_long + i] == (float)(i % 89));
}
END_TEST

START_TEST(libsvm_tells_the_line_of_a_fault_far_inside)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    for (int i = 1; i < 100000; i++)
        g_string_append(text, "1 1:1 22:22 333:333\n");
    g_string_append(text, "1 1:1 22:2z\n");
    ck_assert_ptr_null(read_text(text->str, text->len, &error));
    ck_assert_str_eq(error->message,
                     "rows:100000:10: expected a finite number as value, found \"2z\"");
}
END_TEST

/* Files: plain and gzipped ones are read alike. */

static char *temporary_file(void)
{
    char *path = NULL;
    g_autoptr(GError) error = NULL;
    const int fd = g_file_open_tmp("rubato-libsvm-XXXXXX", &path, &error);

    ck_assert_msg(fd >= 0, "%s", error != NULL ? error->message : "");
    g_close(fd, NULL);
    return path;
}

static void write_gzipped(const char *path, const char *text)
{
    gzFile file = gzopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)strlen(text)), (int)strlen(text));
    ck_assert_int_eq(gzclose(file), Z_OK);
}

static const char file_text[] = "1 1:1 2:2\n-1 3:3\n";

START_TEST(libsvm_loads_plain_and_gzipped_files)
{
    g_autofree char *path = temporary_file();
    g_autoptr(GError) error = NULL;

    if (_i == 0)
        ck_assert(g_file_set_contents(path, file_text, -1, NULL));
    else
        write_gzipped(path, file_text);
    g_autoptr(RubatoSparseRows) rows = rubato_libsvm_load(path, &error);
    g_unlink(path);
    ck_assert_ptr_nonnull(rows);
    ck_assert_uint_eq(rows->n_rows, 2);
    ck_assert_uint_eq(rows->n_entries, 3);
}
END_TEST

/* The gzipped file, without its last bytes and with some bits turned over. */
START_TEST(libsvm_refuses_damaged_gzip)
{
    g_autofree char *path = temporary_file();
    g_autofree char *bytes = NULL;
    g_autoptr(GError) error = NULL;
    gsize size;

    write_gzipped(path, file_text);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    if (_i == 0)
        size -= 9;
    else
        bytes[size - 6] = (char)~bytes[size - 6];
    ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
    ck_assert_ptr_null(rubato_libsvm_load(path, &error));
    g_unlink(path);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert(strstr(error->message, path) != NULL);
    ck_assert_msg(strstr(error->message, _i == 0 ? "truncated" : "damaged") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(libsvm_names_a_file_that_cannot_be_read)
{
    const char *const path = _i == 0 ? "/no/such/file.svm" : g_get_tmp_dir();
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_libsvm_load(path, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert(g_str_has_prefix(error->message, path));
}
END_TEST

/* Numbers: the fast way must give what strtod gives, bit by bit. */

START_TEST(decimal_agrees_with_strtod)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(20260);

    for (int i = 0; i < 200000; i++) {
        char text[64], expected_text[64];
        const char *end;
        float number;
        const int digits = g_rand_int_range(random, 1, 22);
        GString *built = g_string_new(g_rand_boolean(random) ? "-" : "");

        for (int d = 0; d < digits; d++)
            g_string_append_c(built, (char)('0' + g_rand_int_range(random, 0, 10)));
        g_string_insert_c(built,
                          g_rand_int_range(random, built->str[0] == '-', (int)built->len + 1), '.');
        if (g_rand_boolean(random))
            g_string_append_printf(built, "e%d", g_rand_int_range(random, -40, 16));
        g_strlcpy(text, built->str, sizeof text);
        g_strlcpy(expected_text, built->str, sizeof expected_text);
        g_string_append_c(built, '\n');

        const float expected = (float)g_ascii_strtod(expected_text, NULL);
        const DecimalStatus status = decimal_read_float(built->str, &end, &number);
        ck_assert_msg(status == DECIMAL_OK, "%s: status %d", text, (int)status);
        ck_assert_msg(memcmp(&number, &expected, sizeof number) == 0, "%s: %a, strtod has %a", text,
                      (double)number, (double)expected);
        ck_assert_ptr_eq(end, built->str + built->len - 1);
        g_string_free(built, TRUE);
    }
}
END_TEST

START_TEST(decimal_ignores_the_locale)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8" };
    float number;
    const char *end;

    /* Where none of them is installed this says no more than the other cases do. */
    for (size_t i = 0; i < G_N_ELEMENTS(names) && setlocale(LC_NUMERIC, names[i]) == NULL; i++)
        ;
    ck_assert_int_eq(decimal_read_float("1.5 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 1.5f);
    ck_assert_int_eq(decimal_read_float("1.234567890123456789012e0 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 1.23456789f);
}
END_TEST

START_TEST(decimal_stops_where_the_number_stops)
{
    const char *const text = "12e+ ";
    const char *end;
    float number;
    uint32_t index;

    ck_assert_int_eq(decimal_read_float(text, &end, &number), DECIMAL_OK);
    ck_assert_ptr_eq(end, text + 2);
    ck_assert(number == 12.0f);
    ck_assert_int_eq(decimal_read_index(text, &end, &index), DECIMAL_OK);
    ck_assert_ptr_eq(end, text + 2);
    ck_assert_int_eq(decimal_read_index("-1 ", &end, &index), DECIMAL_NO_NUMBER);
    ck_assert_int_eq(decimal_read_index("4294967296 ", &end, &index), DECIMAL_TOO_LARGE);
    ck_assert_int_eq(decimal_read_float("3.5e38 ", &end, &number), DECIMAL_TOO_LARGE);
    ck_assert_int_eq(decimal_read_float("1e-400 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 0.0f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("libsvm");
    TCase *reading = tcase_create("reading");
    TCase *files = tcase_create("files");
    TCase *numbers = tcase_create("numbers");

    tcase_add_test(reading, libsvm_reads_rows_entries_and_labels);
    tcase_add_loop_test(reading, libsvm_allows_blanks_comments_and_line_ends, 0,
                        (int)G_N_ELEMENTS(same_rows));
    tcase_add_loop_test(reading, libsvm_refuses_with_line_and_column, 0,
                        (int)G_N_ELEMENTS(bad_rows));
    tcase_add_test(reading, libsvm_refuses_zero_bytes);
    tcase_add_test(reading, libsvm_reads_lines_of_any_length);
    tcase_add_test(reading, libsvm_tells_the_line_of_a_fault_far_inside);
    tcase_add_loop_test(files, libsvm_loads_plain_and_gzipped_files, 0, 2);
    tcase_add_loop_test(files, libsvm_refuses_damaged_gzip, 0, 2);
    tcase_add_loop_test(files, libsvm_names_a_file_that_cannot_be_read, 0, 2);
    tcase_add_test(numbers, decimal_agrees_with_strtod);
    tcase_add_test(numbers, decimal_ignores_the_locale);
    tcase_add_test(numbers, decimal_stops_where_the_number_stops);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, numbers);
    return run_suite(suite);
}
