/* Sources of bytes: plain and packed files, correct and damaged. */
#include "io/data/input/byte_source.h"

#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/support/runner.h"

typedef enum { PACKING_PLAIN, PACKING_GZIP, PACKING_ZSTD, N_PACKINGS } Packing;

/* Bytes as a file holds them: those of `text`, packed, appended. */
static void append(GByteArray *file, Packing packing, const void *text, size_t size)
{
    const size_t bound = compressBound(size) + ZSTD_compressBound(size); /* enough for either */
    g_autofree guint8 *packed = g_malloc(bound);
    z_stream gzip = { 0 };

    switch (packing) {
    case PACKING_GZIP:
        ck_assert_int_eq(deflateInit2(&gzip, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        gzip.next_in = (z_const Bytef *)(uintptr_t)text;
        gzip.avail_in = (uInt)size;
        gzip.next_out = packed;
        gzip.avail_out = (uInt)bound;
        ck_assert_int_eq(deflate(&gzip, Z_FINISH), Z_STREAM_END);
        g_byte_array_append(file, packed, (guint)gzip.total_out);
        deflateEnd(&gzip);
        break;
    case PACKING_ZSTD:
        g_byte_array_append(file, packed, (guint)ZSTD_compress(packed, bound, text, size, 1));
        break;
    default:
        g_byte_array_append(file, text, (guint)size);
    }
}

/* Text that does not pack well. */
static char *random_text(size_t size)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(11);
    char *text = g_malloc(size);

    for (size_t i = 0; i < size; i++)
        text[i] = (char)g_rand_int_range(random, 0, 256);
    text[0] = 'x'; /* not the magic number of anything */
    return text;
}

/* Reads a file of these bytes in steps. (transfer full) */
static GByteArray *read_bytes(const GByteArray *file, size_t step, bool *packed, GError **error)
{
    g_autofree char *path = NULL;
    g_autofree guint8 *buffer = g_malloc(step);
    const int fd = g_file_open_tmp("rubato-bytes-XXXXXX", &path, NULL);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    size_t got = step;

    ck_assert(fd >= 0);
    g_close(fd, NULL);
    ck_assert(g_file_set_contents(path, (const char *)file->data, file->len, NULL));
    g_autoptr(ByteSource) source = byte_source_open(path, error);
    g_unlink(path);
    ck_assert_ptr_nonnull(source);
    ck_assert_str_eq(byte_source_name(source), path);
    while (got == step) {
        if (!byte_source_read(source, buffer, step, &got, error))
            return NULL;
        g_byte_array_append(bytes, buffer, (guint)got);
    }
    ck_assert_uint_ge(byte_source_limit(source), bytes->len);
    *packed = byte_source_is_packed(source);
    return g_steal_pointer(&bytes);
}

static const size_t sizes[] = { 0, 1, 3, 4, 5, 1000, 700000 };
static const size_t steps[] = { 1, 7, 4096, 1000000 };

START_TEST(source_gives_the_bytes_of_a_file_however_it_is_packed)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        for (size_t j = sizes[i] > 1000 ? 2 : 0; j < G_N_ELEMENTS(steps); j++) {
            g_autoptr(GByteArray) file = g_byte_array_new();
            g_autoptr(GError) error = NULL;
            g_autofree char *text = random_text(sizes[i] + 1);
            bool packed;

            append(file, (Packing)_i, text, sizes[i]);
            g_autoptr(GByteArray) bytes = read_bytes(file, steps[j], &packed, &error);
            ck_assert_msg(bytes != NULL, "%s", error != NULL ? error->message : "");
            ck_assert(packed == (_i != PACKING_PLAIN));
            ck_assert_uint_eq(bytes->len, sizes[i]);
            ck_assert(sizes[i] == 0 || memcmp(bytes->data, text, sizes[i]) == 0);
        }
}
END_TEST

/* As `cat a.gz b.gz` makes them. */
START_TEST(source_reads_streams_one_behind_the_other)
{
    g_autoptr(GByteArray) file = g_byte_array_new();
    g_autoptr(GError) error = NULL;
    g_autofree char *text = random_text(300000);
    bool packed;

    append(file, (Packing)_i, text, 299000);
    append(file, (Packing)_i, "", 0);
    append(file, (Packing)_i, text + 299000, 1000);
    g_autoptr(GByteArray) bytes = read_bytes(file, 4096, &packed, &error);
    ck_assert_msg(bytes != NULL, "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(bytes->len, 300000);
    ck_assert_mem_eq(bytes->data, text, 300000);
}
END_TEST

static void check_fails(const GByteArray *file, const char *what)
{
    g_autoptr(GError) error = NULL;
    bool packed;
    g_autoptr(GByteArray) bytes = read_bytes(file, 4096, &packed, &error);

    ck_assert_ptr_null(bytes);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, what) != NULL, "\"%s\" does not say \"%s\"",
                  error->message, what);
}

START_TEST(source_refuses_every_truncation)
{
    g_autoptr(GByteArray) file = g_byte_array_new();
    g_autofree char *text = random_text(200);

    append(file, (Packing)_i, text, 200);
    for (guint size = 4; size < file->len; size++) {
        g_autoptr(GByteArray) part = g_byte_array_new();

        g_byte_array_append(part, file->data, size);
        check_fails(part, _i == PACKING_GZIP ? "the gzip stream ends here, too early"
                                             : "the zstd stream ends here, too early");
    }
}
END_TEST

START_TEST(source_refuses_damage)
{
    g_autoptr(GByteArray) file = g_byte_array_new();
    g_autofree char *text = random_text(200);

    append(file, (Packing)_i, text, 200);
    file->data[_i == PACKING_GZIP ? file->len - 6 : 4] ^=
        0x08; /* the check sum; what heads the frame */
    check_fails(file, _i == PACKING_GZIP ? "the gzip stream is damaged (incorrect data check)"
                                         : "the zstd stream is damaged (");
}
END_TEST

START_TEST(source_refuses_rubbish_behind_a_stream)
{
    g_autoptr(GByteArray) file = g_byte_array_new();

    append(file, (Packing)_i, "rows", 4);
    append(file, PACKING_PLAIN, "1 1:1\n", 6);
    check_fails(file, "near byte 4: the ");
}
END_TEST

START_TEST(source_names_a_file_that_cannot_be_read)
{
    const char *const path = _i == 0 ? "/no/such/file.svm" : g_get_tmp_dir();
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(byte_source_open(path, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert(g_str_has_prefix(error->message, path));
    ck_assert(strstr(error->message, _i == 0 ? "cannot be opened" : "is a directory") != NULL);
}
END_TEST

START_TEST(source_gives_bytes_of_memory)
{
    g_autoptr(ByteSource) source = byte_source_new_memory("memory", "0123456789", 10);
    char buffer[8];
    size_t got;

    ck_assert_uint_eq(byte_source_limit(source), 10);
    ck_assert(byte_source_read(source, buffer, 8, &got, NULL));
    ck_assert_uint_eq(got, 8);
    ck_assert(byte_source_read(source, buffer, 8, &got, NULL));
    ck_assert_uint_eq(got, 2);
    ck_assert_mem_eq(buffer, "89", 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("byte_source");
    TCase *sources = tcase_create("sources");

    tcase_add_loop_test(sources, source_gives_the_bytes_of_a_file_however_it_is_packed,
                        PACKING_PLAIN, N_PACKINGS);
    tcase_add_loop_test(sources, source_reads_streams_one_behind_the_other, PACKING_GZIP,
                        N_PACKINGS);
    tcase_add_loop_test(sources, source_refuses_every_truncation, PACKING_GZIP, N_PACKINGS);
    tcase_add_loop_test(sources, source_refuses_damage, PACKING_GZIP, N_PACKINGS);
    tcase_add_loop_test(sources, source_refuses_rubbish_behind_a_stream, PACKING_GZIP, N_PACKINGS);
    tcase_add_loop_test(sources, source_names_a_file_that_cannot_be_read, 0, 2);
    tcase_add_test(sources, source_gives_bytes_of_memory);
    suite_add_tcase(suite, sources);
    return run_suite(suite);
}
