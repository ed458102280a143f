/* CSV: columns by number and name, quotes, categories hashed and coded, and what is refused
 * where. */
#include <string.h>

#include "io/data/formats/text_hash.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

static const char *const first_and_second[] = { "1", "2", NULL };
static const char *const by_name[] = { "job", "town", NULL };

static const RubatoDataSpec plain = { .format = "csv" };
static const RubatoDataSpec semicolon = { .format = "csv", .separator = ';' };
static const RubatoDataSpec hashed = { .format = "csv", .categorical_columns = first_and_second };
static const RubatoDataSpec coded = { .format = "csv",
                                      .categorical_columns = first_and_second,
                                      .categories = RUBATO_CATEGORIES_CODED };
static const RubatoDataSpec named = { .format = "csv",
                                      .label_column = "paid",
                                      .categorical_columns = by_name };
static const RubatoDataSpec unlabelled = { .format = "csv", .label_column = "" };
static const RubatoDataSpec last_label = { .format = "csv", .label_column = "2" };
static const RubatoDataSpec header = { .format = "csv", .header = RUBATO_CSV_HEADER_YES };
static const RubatoDataSpec no_header = { .format = "csv", .header = RUBATO_CSV_HEADER_NO };

START_TEST(csv_numbers_have_their_columns_for_keys)
{
    g_autoptr(RubatoRows) rows = load_good(&plain, "1,2.5,-3e1\n0,,4\n-1,0,\n");

    ck_assert_uint_eq(rows->n_rows, 3);
    ck_assert_uint_eq(rows->n_fields, 3);
    check_row(rows, 0, 1, 2, (RubatoKey[]){ 1, 2 }, (uint32_t[]){ 1, 2 }, (float[]){ 2.5f, -30 });
    check_row(rows, 1, 0, 1, (RubatoKey[]){ 2 }, (uint32_t[]){ 2 }, (float[]){ 4 });
    check_row(rows, 2, -1, 1, (RubatoKey[]){ 1 }, (uint32_t[]){ 1 }, (float[]){ 0 });
}
END_TEST

/* Texts that all hold a row of label 1 and the numbers 2 and 3, and nothing else. */
static const struct {
    const RubatoDataSpec *spec;
    const char *text;
} same_rows[] = {
    { &plain, "1,2,3\n" },
    { &plain, "1,2,3" },
    { &plain, "1,2,3\r\n" },
    { &plain, "\n 1 ,\t2 , 3\t\n \n\r\n" },
    { &plain, "\"1\",\"2\",\"3\"\n" },
    { &plain, " \"1\" , \"2\" ,3 " },
    { &plain, "\xef\xbb\xbf"
              "1,2,3\n" },
    { &plain, "y,a,b\n1,2,3\n" },
    { &plain, "\xef\xbb\xbf\"y\",\"a, b\",\"say \"\"c\"\"\"\r\n1,2,3\r\n" },
    { &plain, ",,x\n1,2,3\n" },
    { &header, "7,8,9\n1,2,3\n" },
    { &no_header, "1,2,3\n" },
    { &semicolon, "1;2;3\n" },
    { &(RubatoDataSpec){ .format = "csv", .separator = '\t' }, "1\t2\t3\n" },
    { &(RubatoDataSpec){ .format = "csv", .separator = '\t' }, "1 \t2\t 3\n" },
    { &(RubatoDataSpec){ .format = "csv", .separator = ' ' }, "1 2 3\n" },
};

START_TEST(csv_allows_quotes_blanks_and_headers)
{
    for (size_t i = 0; i < G_N_ELEMENTS(same_rows); i++) {
        g_autoptr(RubatoRows) rows = load_good(same_rows[i].spec, same_rows[i].text);

        ck_assert_msg(rows->n_rows == 1 && rows->n_entries == 2 && rows->label[0] == 1 &&
                          rows->key[0] == 1 && rows->key[1] == 2 && rows->field[0] == 1 &&
                          rows->field[1] == 2 && rows->value[0] == 2 && rows->value[1] == 3,
                      "other rows in \"%s\"", same_rows[i].text);
    }
}
END_TEST

START_TEST(csv_finds_the_label_by_number_or_does_without)
{
    g_autoptr(RubatoRows) last = load_good(&last_label, "7,8,1\n9,6,0\n");
    g_autoptr(RubatoRows) none = load_good(&unlabelled, "7,8\n");

    check_row(last, 0, 1, 2, (RubatoKey[]){ 0, 1 }, (uint32_t[]){ 0, 1 }, (float[]){ 7, 8 });
    check_row(last, 1, 0, 2, (RubatoKey[]){ 0, 1 }, (uint32_t[]){ 0, 1 }, (float[]){ 9, 6 });
    check_row(none, 0, 0, 2, (RubatoKey[]){ 0, 1 }, (uint32_t[]){ 0, 1 }, (float[]){ 7, 8 });
}
END_TEST

START_TEST(csv_finds_columns_by_name)
{
    g_autoptr(RubatoRows) rows =
        load_good(&named, "town,age,job,paid\nRome,50,smith,1\n\"New York\",,,0\n");

    check_row(rows, 0, 1, 3,
              (RubatoKey[]){ text_hash("Rome", 4, 0, 0), 1, text_hash("smith", 5, 2, 0) },
              (uint32_t[]){ 0, 1, 2 }, (float[]){ 1, 50, 1 });
    check_row(rows, 1, 0, 1, (RubatoKey[]){ text_hash("New York", 8, 0, 0) }, (uint32_t[]){ 0 },
              (float[]){ 1 });
}
END_TEST

/* The same text in another column is another key; however it is quoted it is the same. */
START_TEST(csv_hashes_column_and_text)
{
    g_autoptr(RubatoRows) rows =
        load_good(&hashed, "1,red,red\n0, \"red\" ,\"r\"\"d\"\n1,\"a,b\",\"r\"\"d\"\n");

    ck_assert_uint_eq(rows->n_entries, 6);
    ck_assert(rows->key[0] != rows->key[1]);
    ck_assert_uint_eq(rows->key[0], rows->key[2]);
    ck_assert_uint_eq(rows->key[3], text_hash("r\"d", 3, 2, 0));
    ck_assert_uint_eq(rows->key[5], rows->key[3]);
    ck_assert_uint_eq(rows->key[4], text_hash("a,b", 3, 1, 0));
}
END_TEST

START_TEST(csv_keeps_the_upper_bits_of_hashes)
{
    RubatoDataSpec few = hashed;

    few.hash_bits = 20;
    g_autoptr(RubatoRows) rows = load_good(&few, "1,red,green\n");
    ck_assert_uint_eq(rows->key[0], text_hash("red", 3, 1, 0) >> 44);
    ck_assert_uint_eq(rows->key[1], text_hash("green", 5, 2, 0) >> 44);
}
END_TEST

/* Hashes are kept in models and files: they must not change. */
START_TEST(hashes_are_those_of_xxh3)
{
    ck_assert_uint_eq(text_hash("", 0, 0, 0), UINT64_C(0x2d06800538d394c2));
    ck_assert_uint_eq(text_hash("", 0, 0, 16), 0x2d06);
}
END_TEST

START_TEST(csv_codes_categories_in_the_order_of_the_files)
{
    g_autoptr(RubatoRows) rows =
        load_good(&coded, "1,red,x,5\n0,green,x,6\n1,red,y,7\n0,,green,8\n");

    check_row(rows, 0, 1, 3, (RubatoKey[]){ 4, 5, 3 }, (uint32_t[]){ 1, 2, 3 },
              (float[]){ 1, 1, 5 });
    check_row(rows, 1, 0, 3, (RubatoKey[]){ 6, 5, 3 }, (uint32_t[]){ 1, 2, 3 },
              (float[]){ 1, 1, 6 });
    check_row(rows, 2, 1, 3, (RubatoKey[]){ 4, 7, 3 }, (uint32_t[]){ 1, 2, 3 },
              (float[]){ 1, 1, 7 });
    check_row(rows, 3, 0, 2, (RubatoKey[]){ 8, 3 }, (uint32_t[]){ 2, 3 }, (float[]){ 1, 8 });
}
END_TEST

static const struct {
    const RubatoDataSpec *spec;
    const char *text;
    const char *message;
} bad_rows[] = {
    { &plain, "", "rows: expected a row" },
    { &plain, "\n \n", "rows: expected a row" },
    { &plain, "y,a\n", "rows: expected a row" },
    { &plain, "1,2\n1,x\n", "rows:2:3: expected a finite number in column 1, found \"x\"" },
    { &plain, "y,age\n1,2\n1,2z,3\n",
      "rows:3:3: expected a finite number in column 1 (age), found \"2z\"" },
    { &plain, "1,2\n1,nan\n", "rows:2:3: expected a finite number in column 1, found \"nan\"" },
    { &plain, "1,2\n1,1e39\n",
      "rows:2:3: expected a number within the range of a float in column 1, found \"1e39\"" },
    { &plain, "1,2\n1, 2 3 \n", "rows:2:4: expected a finite number in column 1, found \"2 3\"" },
    { &plain, "1,2\n1,\"2 3\"\n", "rows:2:4: expected a finite number in column 1, found \"2 3\"" },
    { &plain, "1,2\n1,\x01\xff\n",
      "rows:2:3: expected a finite number in column 1, found \"\\001\\377\"" },
    { &plain, "1,2\n,2\n",
      "rows:2:1: expected a finite number as label in column 0, found an empty cell" },
    { &plain, "1,2\n \"\",2\n", "rows:2:1: expected a finite number as label in column 0" },
    { &plain, "1,2\nno,2\n", "rows:2:1: expected a finite number in column 0, found \"no\"" },
    { &plain, "1,2,3\n1,2\n", "rows:2:4: expected 3 cells, as in the first line, found 2" },
    { &plain, "1,2,3\n1,2,3,4\n",
      "rows:2:6: expected the end of the line behind 3 cells, found \",4\"" },
    { &plain, "1,2\n1,\"2\n",
      "rows:2:5: expected a closing quote on the same line, found the end" },
    { &plain, "1,2\n1,\"2\"3\n",
      "rows:2:6: expected \",\" or the end of the line behind a quoted cell, found \"3\"" },
    { &plain, "1,2\n1,2\r3\n",
      "rows:2:5: expected the end of the line behind a carriage return, found \"3\"" },
    { &semicolon, "1;2\n1,2\n", "rows:2:1: expected a finite number in column 0, found \"1,2\"" },
    { &semicolon, "1;2\n1;2,5\n", "rows:2:3: expected a finite number in column 1, found \"2,5\"" },
    { &no_header, "y,a\n1,2\n", "rows:1:1: expected a finite number in column 0, found \"y\"" },
    { &hashed, "1,a,b\n1,\"a,b\n", "rows:2:7: expected a closing quote on the same line" },
    { &coded, "1,a,b\n1,a\n", "rows:2:4: expected 3 cells, as in the first line, found 2" },
    /* the columns that are asked for */
    { &last_label, "1,2\n",
      "rows:1:1: expected a column \"2\", found 2 columns without names, counted from 0" },
    { &named, "town,age,work,paid\nRome,50,smith,1\n",
      "rows:1:1: expected a column \"job\", found 4 others, the first is \"town\"" },
    { &(RubatoDataSpec){
          .format = "csv", .categorical_columns = first_and_second, .label_column = "1" },
      "1,2,3\n", "rows:1:3: expected the label not to be a categorical column" },
    { &(RubatoDataSpec){ .format = "csv", .label_column = "y", .header = RUBATO_CSV_HEADER_NO },
      "y,2\n", "rows:1:1: expected a column \"y\", found 2 columns without names" },
    { &plain, "\"y,2\n1,2\n", "rows:1:5: expected a closing quote on the same line" },
};

START_TEST(csv_refuses_with_line_and_column)
{
    for (size_t i = 0; i < G_N_ELEMENTS(bad_rows); i++)
        check_refused(bad_rows[i].spec, bad_rows[i].text, strlen(bad_rows[i].text),
                      bad_rows[i].message);
}
END_TEST

START_TEST(csv_refuses_zero_bytes)
{
    check_refused(&plain, "1,2\n1,\0\n", 8,
                  "rows:2:3: expected a finite number in column 1, found a zero byte");
}
END_TEST

START_TEST(csv_skips_and_counts_bad_rows)
{
    RubatoDataSpec lenient = plain;

    lenient.max_bad_rows = 2;
    g_autoptr(RubatoRows) rows = load_good(&lenient, "1,2\n1,x\n1,2,3\n0,4\n");
    ck_assert_uint_eq(rows->n_rows, 2);
    ck_assert_uint_eq(rows->n_entries, 2);
    ck_assert(rows->value[1] == 4);
    lenient.max_bad_rows = 1;
    check_refused(&lenient, "1,2\n1,x\n1,2,3\n0,4\n", 18,
                  "rows:3:4: expected the end of the line behind 2 cells");
}
END_TEST

START_TEST(csv_refuses_a_first_line_without_end)
{
    g_autofree char *text = g_strnfill(100000, '1');

    check_refused(&plain, text, 100000,
                  "rows:1:1: expected the first line to end within 65536 bytes");
}
END_TEST

START_TEST(csv_refuses_a_separator_that_cannot_be)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(
        load_text(&(RubatoDataSpec){ .format = "csv", .separator = '"' }, "1", 1, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    ck_assert(strstr(error->message, "give another separator") != NULL);
}
END_TEST

/* ---- header or row ---- */

/* How many rows a text has tells whether its first line was taken as one. */
static const struct {
    const RubatoDataSpec *spec;
    const char *text;
    size_t n_rows;
} first_lines[] = {
    { &plain, "h,1,2\ng,3,4\n", 2 },        /* labels are words, too */
    { &plain, "y,a,b\ng,3,4\nh,5,6\n", 2 }, /* names above numbers */
    { &plain, "y,a,b\n1,3,4\n0,5,6\n", 2 },
    { &plain, "label,0,1,2\nspam,3,4,5\nham,3,4,5\n", 2 }, /* names that are numbers */
    { &plain, "label,0,1,2\n1,3,4,5\n0,3,4,5\n", 2 },
    { &plain, "spam,0,1,2\nham,3,4,5\nspam,3,4,5\n", 3 }, /* a word that comes again */
    { &hashed, "y,a,b\nh,red,big\ng,blue,big\n", 2 },
    { &hashed, "h,red,small\nh,red,big\ng,blue,big\n", 3 },
    { &hashed, "1,red,small\n0,red,big\n", 2 },
    { &plain, "h,1\ng,2", 2 }, /* without an end of the last line */
    { &plain, "h,1,2", 1 },
};

START_TEST(csv_decides_by_all_evidence_whether_there_is_a_header)
{
    g_autoptr(RubatoRows) rows = load_good(first_lines[_i].spec, first_lines[_i].text);

    ck_assert_msg(rows->n_rows == first_lines[_i].n_rows, "%zu rows in \"%s\"", rows->n_rows,
                  first_lines[_i].text);
}
END_TEST

/* Most cells decide; a label is the place of its word in the order of their bytes. */
START_TEST(csv_labels_may_be_words)
{
    g_autoptr(RubatoRows) words = load_good(&plain, "spam,1\n ham ,2\n\"ham\",3\n\"s\"\"p\",4\n");
    g_autoptr(RubatoRows) mixed = load_good(&plain, "a,1\n7,2\nb,3\n");

    ck_assert_uint_eq(words->n_rows, 4);
    ck_assert(words->label[0] == 2 && words->label[1] == 0 && words->label[2] == 0 &&
              words->label[3] == 1);
    ck_assert(mixed->label[0] == 1 && mixed->label[1] == 0 && mixed->label[2] == 2);
    check_refused(&plain, "1,2\n0,3\nnan,4\n", 14,
                  "rows:3:1: expected a finite number in column 0, found \"nan\"");
    check_refused(&plain, "a,2\nb,3\n,4\n", 11,
                  "rows:3:1: expected a word as label in column 0, found an empty cell");
}
END_TEST

START_TEST(csv_bad_rows_teach_no_label)
{
    RubatoDataSpec lenient = plain;

    lenient.max_bad_rows = 2;
    g_autoptr(RubatoRows) rows = load_good(&lenient, "b,1\n\"a,2\n\na\nc,3\n");
    ck_assert_uint_eq(rows->n_rows, 2);
}
END_TEST

/* ---- several files ---- */

static const struct {
    const char *first, *second;
    const char *message; /* NULL: they go together, three rows */
} pairs[] = {
    { "y,a\n1,2\n", "y,a\n0,3\n0,4\n", NULL },
    { "1,2\n", "0,3\n0,4\n", NULL },
    { "y,a\n1,2\n", "0,3\n0,4\n", NULL }, /* a part without its header */
    { "", "y,a\n1,2\n1,3\n1,4\n", NULL },
    { "y,a\n1,2\n", "y,a,b\n0,3,4\n",
      "second:1:1: expected 2 columns, as in the first file, found 3" },
    { "y,a\n1,2\n", "y,b\n0,3\n",
      "second:1:3: expected \"a\", the name of column 1 in the first file, found \"b\"" },
    { "1,2\n", "y,a\n0,3\n", "second:1:1: expected a finite number in column 0, found \"y\"" },
};

START_TEST(csv_files_must_be_alike)
{
    for (size_t i = 0; i < G_N_ELEMENTS(pairs); i++) {
        g_autofree char *dir = g_dir_make_tmp("rubato-csv-XXXXXX", NULL);
        g_autofree char *first = g_build_filename(dir, "first", NULL);
        g_autofree char *second = g_build_filename(dir, "second", NULL);
        const char *const paths[] = { first, second, NULL };
        RubatoDataSpec spec = plain;
        g_autoptr(GError) error = NULL;

        spec.paths = paths;
        ck_assert(g_file_set_contents(first, pairs[i].first, -1, NULL));
        ck_assert(g_file_set_contents(second, pairs[i].second, -1, NULL));
        g_autoptr(RubatoRows) rows = rubato_dataset_load(&spec, &error);
        remove_files(dir);
        if (pairs[i].message == NULL) {
            ck_assert_msg(rows != NULL, "%s", error != NULL ? error->message : "");
            ck_assert_uint_eq(rows->n_rows, 3);
            ck_assert_uint_eq(rows->n_entries, 3);
        } else {
            ck_assert_ptr_null(rows);
            ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
            ck_assert_msg(g_str_has_prefix(error->message + strlen(dir) + 1, pairs[i].message),
                          "%s", error->message);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("csv");
    TCase *reading = tcase_create("reading"), *refusing = tcase_create("refusing");

    tcase_add_test(reading, csv_numbers_have_their_columns_for_keys);
    tcase_add_test(reading, csv_allows_quotes_blanks_and_headers);
    tcase_add_test(reading, csv_finds_the_label_by_number_or_does_without);
    tcase_add_test(reading, csv_finds_columns_by_name);
    tcase_add_test(reading, csv_hashes_column_and_text);
    tcase_add_test(reading, csv_keeps_the_upper_bits_of_hashes);
    tcase_add_test(reading, hashes_are_those_of_xxh3);
    tcase_add_test(reading, csv_codes_categories_in_the_order_of_the_files);
    tcase_add_loop_test(reading, csv_decides_by_all_evidence_whether_there_is_a_header, 0,
                        (int)G_N_ELEMENTS(first_lines));
    tcase_add_test(reading, csv_labels_may_be_words);
    tcase_add_test(reading, csv_bad_rows_teach_no_label);
    tcase_add_test(refusing, csv_refuses_with_line_and_column);
    tcase_add_test(refusing, csv_refuses_zero_bytes);
    tcase_add_test(refusing, csv_skips_and_counts_bad_rows);
    tcase_add_test(refusing, csv_refuses_a_first_line_without_end);
    tcase_add_test(refusing, csv_refuses_a_separator_that_cannot_be);
    tcase_add_test(refusing, csv_files_must_be_alike);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, refusing);
    return run_suite(suite);
}
