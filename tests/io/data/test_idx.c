/* The reader of IDX images, and the generated images that replace them. */
#include "io/data/formats/idx_file.h"

#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/support/runner.h"

/* Two images of 2 × 3, labels 4 and 1. */
static const uint8_t good_images[] = {
    0, 0, 8, 3, 0, 0, 0,   2,   0,   0,   0,   2,   0, 0, 0, 3, /* header */
    1, 2, 3, 4, 5, 6, 250, 251, 252, 253, 254, 255,
};
static const uint8_t good_labels[] = { 0, 0, 8, 1, 0, 0, 0, 2, 4, 1 };

static RubatoImages *read_bytes(const uint8_t *images, size_t n_images, const uint8_t *labels,
                                size_t n_labels, GError **error)
{
    g_autoptr(ByteSource) image_source = byte_source_new_memory("images", images, n_images);
    g_autoptr(ByteSource) label_source = byte_source_new_memory("labels", labels, n_labels);

    return idx_read_images(image_source, label_source, error);
}

static void check_good(const RubatoImages *images)
{
    ck_assert_uint_eq(images->n_images, 2);
    ck_assert_uint_eq(images->height, 2);
    ck_assert_uint_eq(images->width, 3);
    ck_assert_uint_eq(images->n_classes, 5);
    ck_assert_mem_eq(images->pixels, good_images + 16, 12);
    ck_assert_mem_eq(images->labels, good_labels + 8, 2);
}

START_TEST(idx_reads_images_and_labels)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoImages) images =
        read_bytes(good_images, sizeof good_images, good_labels, sizeof good_labels, &error);

    ck_assert_ptr_nonnull(images);
    check_good(images);
}
END_TEST

/* Each case turns one byte of a good file into another. */
static const struct {
    enum { IMAGES, LABELS } file;
    size_t at;
    uint8_t byte;
    const char *message;
} bad_bytes[] = {
    { IMAGES, 0, 0x1f,
      "images: byte 0: expected an IDX file of images, which begins with 00 00 08 03" },
    { IMAGES, 1, 1, "images: byte 0: expected an IDX file of images" },
    { IMAGES, 2, 0x0d, "images: byte 2: expected unsigned bytes (type 08), found 32-bit floats" },
    { IMAGES, 2, 7, "images: byte 2: expected unsigned bytes (type 08), found an unknown type" },
    { IMAGES, 3, 1, "images: byte 3: expected 3 dimensions, as images have, found 1" },
    { IMAGES, 7, 0, "images: byte 4: expected at least 1 in dimension 0 of images, found 0" },
    { IMAGES, 11, 0, "images: byte 8: expected at least 1 in dimension 1 of images, found 0" },
    { IMAGES, 8, 1, "images: byte 8: expected at most 65536 pixels a side, found 16777218" },
    { IMAGES, 4, 255,
      "images: byte 4: the header announces 25669140492 bytes of images; the file "
      "cannot hold more than 28" },
    { IMAGES, 15, 4, "images: byte 28: expected 4 more bytes of images; the file is truncated" },
    { IMAGES, 15, 2, "images: byte 24: expected the end of the file behind 8 bytes of images" },
    { IMAGES, 7, 1, "labels: byte 4: expected 1 labels, one for each image of images, found 2" },
    { LABELS, 3, 3, "labels: byte 3: expected 1 dimensions, as labels have, found 3" },
    { LABELS, 7, 3, "labels: byte 4: expected 2 labels, one for each image of images, found 3" },
    { LABELS, 4, 1, "labels: byte 4: the header announces 16777218 bytes of labels" },
};

START_TEST(idx_refuses_with_the_byte_that_is_wrong)
{
    uint8_t images[sizeof good_images], labels[sizeof good_labels];
    g_autoptr(GError) error = NULL;

    memcpy(images, good_images, sizeof images);
    memcpy(labels, good_labels, sizeof labels);
    (bad_bytes[_i].file == IMAGES ? images : labels)[bad_bytes[_i].at] = bad_bytes[_i].byte;
    ck_assert_ptr_null(read_bytes(images, sizeof images, labels, sizeof labels, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(g_str_has_prefix(error->message, bad_bytes[_i].message),
                  "\"%s\" does not begin with \"%s\"", error->message, bad_bytes[_i].message);
}
END_TEST

/* A file may be cut off anywhere: the error names the place. */
START_TEST(idx_refuses_every_truncation)
{
    for (size_t size = 0; size < sizeof good_images; size++) {
        g_autoptr(GError) error = NULL;

        ck_assert_ptr_null(read_bytes(good_images, size, good_labels, sizeof good_labels, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
        ck_assert(g_str_has_prefix(error->message, "images: byte "));
    }
    for (size_t size = 0; size < sizeof good_labels; size++) {
        g_autoptr(GError) error = NULL;

        ck_assert_ptr_null(read_bytes(good_images, sizeof good_images, good_labels, size, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
        ck_assert(g_str_has_prefix(error->message, "labels: byte "));
    }
}
END_TEST

/* Files: plain, gzipped, mixed, absent. */

typedef struct {
    char *dir, *images, *labels;
} Files;

static void write_file(const char *path, const uint8_t *bytes, size_t size, const char *mode)
{
    gzFile file = gzopen(path, mode);

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, (unsigned)size), (int)size);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

static Files files_new(const char *images_mode, const char *labels_mode)
{
    Files files = { .dir = g_dir_make_tmp("rubato-idx-XXXXXX", NULL) };

    ck_assert_ptr_nonnull(files.dir);
    files.images = g_build_filename(files.dir, "images", NULL);
    files.labels = g_build_filename(files.dir, "labels", NULL);
    write_file(files.images, good_images, sizeof good_images, images_mode);
    write_file(files.labels, good_labels, sizeof good_labels, labels_mode);
    return files;
}

static void files_remove(Files *files)
{
    g_unlink(files->images);
    g_unlink(files->labels);
    g_rmdir(files->dir);
    g_free(files->images);
    g_free(files->labels);
    g_free(files->dir);
}

START_TEST(idx_loads_plain_and_gzipped_files)
{
    Files files = files_new(_i & 1 ? "wb" : "wbT", _i & 2 ? "wb" : "wbT");
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoImages) images = rubato_images_load(files.images, files.labels, &error);

    files_remove(&files);
    ck_assert_ptr_nonnull(images);
    check_good(images);
}
END_TEST

START_TEST(idx_loads_images_without_labels)
{
    Files files = files_new("wb", "wb");
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoImages) images = rubato_images_load(files.images, NULL, &error);

    files_remove(&files);
    ck_assert_ptr_nonnull(images);
    ck_assert_uint_eq(images->n_images, 2);
    ck_assert_uint_eq(images->n_classes, 0);
    ck_assert_ptr_null(images->labels);
    ck_assert_mem_eq(images->pixels, good_images + 16, 12);
}
END_TEST

START_TEST(idx_names_a_file_that_is_not_there)
{
    Files files = files_new("wb", "wb");
    g_autoptr(GError) error = NULL;

    g_unlink(_i == 0 ? files.images : files.labels);
    ck_assert_ptr_null(rubato_images_load(files.images, files.labels, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert(g_str_has_prefix(error->message, _i == 0 ? files.images : files.labels));
    files_remove(&files);
}
END_TEST

/* A small file that claims to be huge is refused before anything is allocated. */
START_TEST(idx_bounds_sizes_by_the_file)
{
    static const uint8_t huge[] = { 0, 0, 8, 3, 255, 255, 255, 255, 0, 1, 0, 0, 0, 1, 0, 0, 7 };
    Files files = files_new("wb", "wb");
    g_autoptr(GError) error = NULL;

    write_file(files.images, huge, sizeof huge, _i == 0 ? "wbT" : "wb");
    ck_assert_ptr_null(rubato_images_load(files.images, files.labels, &error));
    files_remove(&files);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, "the header announces 18446744069414584320 bytes") != NULL,
                  "%s", error->message);
}
END_TEST

/* Generated images. */

START_TEST(generated_images_follow_from_seed_and_number)
{
    g_autoptr(RubatoImages) whole = rubato_images_generate(20, 7, 100, NULL);
    g_autoptr(RubatoImages) part = rubato_images_generate(5, 7, 110, NULL);
    g_autoptr(RubatoImages) other = rubato_images_generate(5, 8, 110, NULL);
    const size_t n_pixels = (size_t)whole->height * whole->width;

    ck_assert_uint_eq(n_pixels, 28 * 28);
    ck_assert_mem_eq(whole->pixels + 10 * n_pixels, part->pixels, 5 * n_pixels);
    ck_assert_mem_eq(whole->labels + 10, part->labels, 5);
    ck_assert_mem_ne(other->pixels, part->pixels, 5 * n_pixels);
}
END_TEST

START_TEST(generated_images_have_all_classes_evenly)
{
    g_autoptr(RubatoImages) images = rubato_images_generate(5000, 1, 0, NULL);
    size_t count[10] = { 0 };

    ck_assert_uint_eq(images->n_classes, 10);
    for (size_t i = 0; i < images->n_images; i++)
        count[images->labels[i]]++;
    for (int c = 0; c < 10; c++)
        ck_assert_msg(count[c] > 400 && count[c] < 600, "class %d: %zu of 5000", c, count[c]);
}
END_TEST

START_TEST(generated_images_beyond_memory_are_an_error)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_images_generate(SIZE_MAX / 2, 1, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("idx");
    TCase *reading = tcase_create("reading");
    TCase *files = tcase_create("files");
    TCase *generated = tcase_create("generated");

    tcase_add_test(reading, idx_reads_images_and_labels);
    tcase_add_loop_test(reading, idx_refuses_with_the_byte_that_is_wrong, 0,
                        (int)G_N_ELEMENTS(bad_bytes));
    tcase_add_test(reading, idx_refuses_every_truncation);
    tcase_add_loop_test(files, idx_loads_plain_and_gzipped_files, 0, 4);
    tcase_add_test(files, idx_loads_images_without_labels);
    tcase_add_loop_test(files, idx_names_a_file_that_is_not_there, 0, 2);
    tcase_add_loop_test(files, idx_bounds_sizes_by_the_file, 0, 2);
    tcase_add_test(generated, generated_images_follow_from_seed_and_number);
    tcase_add_test(generated, generated_images_have_all_classes_evenly);
    tcase_add_test(generated, generated_images_beyond_memory_are_an_error);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, generated);
    return run_suite(suite);
}
