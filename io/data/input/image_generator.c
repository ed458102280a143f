/* Generates images in place of real ones.
 *
 * A class is a few soft blobs at places of its own. An image is its class moved by a pixel or two,
 * with a part of another class and noise added, so that a linear model cannot be perfect.
 * Everything is computed from counters by a mixer, so image i is always the same, whichever other
 * images are made. Runs on the caller's thread, keeps nothing. */
#include <rubato/data.h>

#include <string.h>

#include "io/data/random.h"

#define SIDE 28
#define N_PIXELS ((size_t)SIDE * SIDE)
#define N_CLASSES 10u
#define N_BLOBS 7u
#define MARGIN 4

typedef struct {
    float ink[N_CLASSES][N_PIXELS]; /* 0 .. 1 */
} Classes;

/* In [low, high). */
static float next_float(Random *random, float low, float high)
{
    return low + (high - low) * (float)(random_bits(random) >> 40) * 0x1p-24f;
}

static int next_int(Random *random, int n)
{
    return (int)(random_bits(random) % (uint64_t)n);
}

static void draw_blob(float *ink, Random *random)
{
    const float x = next_float(random, MARGIN, SIDE - MARGIN);
    const float y = next_float(random, MARGIN, SIDE - MARGIN);
    const float radius = next_float(random, 3, 7);
    const float strength = next_float(random, 0.4f, 1);

    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            const float dx = ((float)column - x) / radius, dy = ((float)row - y) / radius;
            const float inside = 1 - dx * dx - dy * dy;
            float *pixel = &ink[row * SIDE + column];

            if (inside > 0)
                *pixel = MIN(*pixel + strength * inside * inside, 1);
        }
}

static void draw_classes(Classes *classes, uint64_t seed)
{
    memset(classes, 0, sizeof *classes);
    for (uint32_t c = 0; c < N_CLASSES; c++) {
        Random random = random_stream(seed, UINT64_MAX - c); /* no image has such a number */

        for (uint32_t i = 0; i < N_BLOBS; i++)
            draw_blob(classes->ink[c], &random);
    }
}

static void draw_image(const Classes *classes, uint8_t label, Random *random, uint8_t *pixels)
{
    const float *own = classes->ink[label];
    const float *other = classes->ink[next_int(random, N_CLASSES)];
    const float contrast = next_float(random, 120, 220);
    const float overlay = next_float(random, 0, 0.9f) * contrast;
    const float noise = next_float(random, 20, 90);
    const int move_x = next_int(random, 5) - 2, move_y = next_int(random, 5) - 2;

    for (int row = 0; row < SIDE; row++) {
        const int from_row = CLAMP(row + move_y, 0, SIDE - 1);

        for (int column = 0; column < SIDE; column++) {
            const int from = from_row * SIDE + CLAMP(column + move_x, 0, SIDE - 1);
            const float value =
                own[from] * contrast + other[from] * overlay + next_float(random, -noise, noise);

            pixels[row * SIDE + column] = (uint8_t)CLAMP(value, 0, 255);
        }
    }
}

RubatoImages *rubato_images_generate(size_t n_images, uint64_t seed, uint64_t first, GError **error)
{
    g_autofree uint8_t *pixels = NULL;
    g_autofree uint8_t *labels = NULL;
    g_autofree Classes *classes = NULL;

    g_return_val_if_fail(n_images > 0, NULL);

    if (n_images <= SIZE_MAX / N_PIXELS) {
        pixels = g_try_malloc(n_images * N_PIXELS);
        labels = g_try_malloc(n_images);
        classes = g_try_new(Classes, 1);
    }
    if (pixels == NULL || labels == NULL || classes == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for %zu generated images; ask for fewer", n_images);
        return NULL;
    }

    draw_classes(classes, seed);
    for (size_t i = 0; i < n_images; i++) {
        Random random = random_stream(seed, first + i);

        labels[i] = (uint8_t)next_int(&random, N_CLASSES);
        draw_image(classes, labels[i], &random, pixels + i * N_PIXELS);
    }

    RubatoImages *images = g_new0(RubatoImages, 1);
    images->n_images = n_images;
    images->height = images->width = SIDE;
    images->n_classes = N_CLASSES;
    images->pixels = g_steal_pointer(&pixels);
    images->labels = g_steal_pointer(&labels);
    return images;
}
