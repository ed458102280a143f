/* Gives the IDX reader arbitrary bytes: those up to the cut that the first byte tells are the
 * images, the rest the labels. */
#include "io/data/formats/idx_file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const RubatoImages *images, size_t size)
{
    size_t sum = 0;

    if (images->n_images * images->height * images->width + images->n_images + 24 > size)
        abort();
    for (size_t i = 0; i < images->n_images * images->height * images->width; i++)
        sum += images->pixels[i];
    for (size_t i = 0; i < images->n_images; i++)
        if (images->labels[i] >= images->n_classes)
            abort();
    if (sum > size * 255)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;

    const size_t cut = MIN((size_t)data[0], size - 1);
    g_autoptr(GError) error = NULL;
    g_autoptr(ByteSource) images = byte_source_new_memory("images", data + 1, cut);
    g_autoptr(ByteSource) labels = byte_source_new_memory("labels", data + 1 + cut, size - 1 - cut);
    g_autoptr(RubatoImages) read = idx_read_images(images, labels, &error);

    if ((read == NULL) != (error != NULL))
        abort();
    if (read != NULL)
        check(read, size);
    return 0;
}
