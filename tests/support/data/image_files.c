#include "tests/support/data/image_files.h"

#include <check.h>
#include <rubato/data.h>
#include <string.h>

#define SEED 1

static void append_big_endian(GByteArray *bytes, size_t number)
{
    const guint32 word = GUINT32_TO_BE((guint32)number);

    g_byte_array_append(bytes, (const guint8 *)&word, sizeof word);
}

/* An IDX file of unsigned bytes: its header, the size of each dimension, the bytes. */
static void write_file(const char *folder, const char *name, const size_t *sizes,
                       guint8 n_dimensions, const guint8 *content)
{
    const guint8 header[] = { 0, 0, 8, n_dimensions };
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    size_t n = 1;

    g_byte_array_append(bytes, header, sizeof header);
    for (guint8 i = 0; i < n_dimensions; i++) {
        append_big_endian(bytes, sizes[i]);
        n *= sizes[i];
    }
    g_byte_array_append(bytes, content, (guint)n);
    ck_assert(g_file_set_contents(path, (const char *)bytes->data, (gssize)bytes->len, NULL));
}

static void write_set(const char *folder, const char *name, size_t n, size_t first)
{
    g_autofree char *images_name = g_strdup_printf("%s-images-idx3-ubyte", name);
    g_autofree char *labels_name = g_strdup_printf("%s-labels-idx1-ubyte", name);
    g_autoptr(RubatoImages) images = rubato_images_generate(n, SEED, first, NULL);

    ck_assert_ptr_nonnull(images);
    const size_t sizes[] = { n, images->height, images->width };
    write_file(folder, images_name, sizes, 3, images->pixels);
    write_file(folder, labels_name, sizes, 1, images->labels);
}

void write_image_files(const char *folder, size_t n_train, size_t n_test)
{
    write_set(folder, "train", n_train, 0);
    write_set(folder, "t10k", n_test, n_train);
}
