/* NumPy's array files, as models are saved in: written as NumPy writes them, read with checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"
#include <rubato/npy.h>

static char *scratch; /* a folder for the case's files */

static void make_scratch(void)
{
    scratch = make_folder();
}

static void remove_scratch(void)
{
    remove_folder(scratch);
    g_free(scratch);
}

static char *in_scratch(const char *name)
{
    return g_build_filename(scratch, name, NULL);
}

static void expect_error(GError *error, RubatoError code, const char *text)
{
    ck_assert_ptr_nonnull(error);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (gint)code), "%s", error->message);
    ck_assert_msg(strstr(error->message, text) != NULL, "\"%s\" lacks \"%s\"", error->message,
                  text);
}

static void write_header(FILE *file, const char *descr, unsigned n_dimensions,
                         const uint64_t *shape)
{
    size_t n;
    g_autofree char *header = rubato_npy_header(descr, n_dimensions, shape, &n);

    fwrite(header, 1, n, file);
}

/* Byte for byte what numpy.save(file, numpy.array([[1, 2], [3, 4], [5, 6]], '<f4')) writes. */
START_TEST(npy_is_written_as_numpy_writes_it)
{
    static const char expected[] = "\x93NUMPY\x01\x00\x76\x00"
                                   "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"
                                   "                                                          \n"
                                   "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40"
                                   "\x00\x00\x80\x40\x00\x00\xa0\x40\x00\x00\xc0\x40";
    const float values[] = { 1, 2, 3, 4, 5, 6 };
    g_autofree char *path = in_scratch("a.npy");
    g_autofree char *text = NULL;
    gsize n;
    FILE *file = fopen(path, "w");

    write_header(file, "<f4", 2, (const uint64_t[]){ 3, 2 });
    fwrite(values, 1, sizeof values, file);
    fclose(file);
    ck_assert(g_file_get_contents(path, &text, &n, NULL));
    ck_assert_uint_eq(n, sizeof expected - 1);
    ck_assert_mem_eq(text, expected, n);
}
END_TEST

START_TEST(npy_values_begin_at_a_multiple_of_64)
{
    static const uint64_t shapes[][2] = { { 0, 1 }, { 7, 1 }, { UINT64_MAX, UINT64_MAX } };

    for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
        char *text = NULL;
        size_t n = 0;
        FILE *file = open_memstream(&text, &n);

        write_header(file, RUBATO_NPY_KEYS, i == 0 ? 1 : 2, shapes[i]);
        fclose(file);
        ck_assert_uint_eq(n % 64, 0);
        ck_assert_int_eq(text[n - 1], '\n');
        free(text);
    }
}
END_TEST

/* A file with a header of version 1.0 and n bytes of values. */
static char *write_npy(const char *dict, size_t n)
{
    char *path = in_scratch("b.npy");
    g_autoptr(GString) text = g_string_new_len("\x93NUMPY\x01\x00", 8);

    g_string_append_c(text, (char)strlen(dict));
    g_string_append_c(text, '\0');
    g_string_append(text, dict);
    for (size_t i = 0; i < n; i++)
        g_string_append_c(text, (char)i);
    ck_assert(g_file_set_contents(path, text->str, (gssize)text->len, NULL));
    return path;
}

static const char *const good_dicts[] = {
    "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }\n",
    "{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<i4\"}",
    " { 'fortran_order' : False , 'shape' : ( 2 , 1 , ) , 'descr' : '<i4' , }   \n",
};

START_TEST(npy_headers_may_be_spelt_otherwise)
{
    g_autofree char *path = write_npy(good_dicts[_i], 8);
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoNpy) npy = rubato_npy_open(path, &error);
    uint8_t values[8];

    ck_assert_msg(npy != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(rubato_npy_check(npy, "<i4", 2, (const uint64_t[]){ 2, 1 }, NULL));
    ck_assert(!rubato_npy_check(npy, "<i4", 1, (const uint64_t[]){ 2 }, NULL));
    ck_assert(!rubato_npy_check(npy, "<f4", 2, (const uint64_t[]){ 2, 1 }, NULL));
    ck_assert(!rubato_npy_check(npy, "<i4", 2, (const uint64_t[]){ 2, 2 }, &error));
    expect_error(error, RUBATO_ERROR_FORMAT,
                 "expected an array (2, 2) of <i4, found (2, 1) of <i4");
    ck_assert(rubato_npy_read(npy, values, 8, NULL));
    ck_assert_int_eq(values[7], 7);
}
END_TEST

static const struct {
    const char *dict;
    size_t n_values;
    const char *message;
} bad_npys[] = {
    { "", 8, "expected a header" },
    { "{}", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 1), }", 8, "expected a header" },
    { "{'descr': '>i4', 'fortran_order': False, 'shape': (2, 1), }", 8, "expected a header" },
    { "{'descr': '<i4aaaaaaaaa', 'fortran_order': False, 'shape': (2, 1)}", 8,
      "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 1), }", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (-2, 1), }", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8,
      "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), } x", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1)", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2,", 8, "expected a header" },
    { "{'descr': '<i4", 8, "expected a header" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }", 7, "found 7 bytes" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }", 9, "found 9 bytes" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387906, 1)}", 8,
      "found 8 bytes" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0,
      "found 0 bytes" },
};

START_TEST(npy_refuses_what_is_no_such_array)
{
    g_autofree char *path = write_npy(bad_npys[_i].dict, bad_npys[_i].n_values);
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_npy_open(path, &error));
    expect_error(error, RUBATO_ERROR_FORMAT, bad_npys[_i].message);
    ck_assert(g_str_has_prefix(error->message, path));
}
END_TEST

START_TEST(npy_refuses_files_that_are_cut_off)
{
    g_autofree char *path = write_npy(good_dicts[0], 8);
    g_autofree char *missing = in_scratch("missing.npy");
    GError *error = NULL;

    for (int size = 12; size >= 0; size -= 4) {
        ck_assert_int_eq(truncate(path, size), 0);
        ck_assert_ptr_null(rubato_npy_open(path, &error));
        expect_error(error, RUBATO_ERROR_FORMAT,
                     size > 10 ? "the header is cut off" : "expected a NumPy array");
        g_clear_error(&error);
    }
    ck_assert_ptr_null(rubato_npy_open(missing, &error));
    expect_error(error, RUBATO_ERROR_IO, "No such file");
    g_clear_error(&error);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rubato_npy");
    TCase *cases = tcase_create("npy");

    tcase_add_checked_fixture(cases, make_scratch, remove_scratch);
    tcase_add_test(cases, npy_is_written_as_numpy_writes_it);
    tcase_add_test(cases, npy_values_begin_at_a_multiple_of_64);
    tcase_add_loop_test(cases, npy_headers_may_be_spelt_otherwise, 0,
                        (int)G_N_ELEMENTS(good_dicts));
    tcase_add_loop_test(cases, npy_refuses_what_is_no_such_array, 0, (int)G_N_ELEMENTS(bad_npys));
    tcase_add_test(cases, npy_refuses_files_that_are_cut_off);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
