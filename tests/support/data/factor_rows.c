/* Counter-based: each number is mixed from the seed and from its purpose. */
#include "tests/support/data/factor_rows.h"

#include <glib.h>
#include <math.h>
#include <rubato/mix.h>
#include <stdio.h>

/* The purposes of numbers. */
enum { FOR_VALUE, FOR_LABEL, FOR_LINEAR, FOR_FACTOR };

typedef struct {
    const FactorRows *spec;
    float *linear;  /* by key - 1 */
    float *factors; /* by key - 1, then by field if field_aware, then by factor */
    uint32_t *keys; /* of the present row, less 1 */
} World;

/* In (0, 1). */
static double even(const FactorRows *spec, uint64_t what, uint64_t which)
{
    const uint64_t bits = rubato_mix64(rubato_mix64(rubato_mix64(spec->seed) + what + 1) + which);

    return ((double)(bits >> 11) + 0.5) * 0x1p-53;
}

/* G. Box, M. Muller, 1958. */
static double normal(const FactorRows *spec, uint64_t what, uint64_t which)
{
    return sqrt(-2 * log(even(spec, what, 2 * which))) *
           cos(2 * G_PI * even(spec, what, 2 * which + 1));
}

static World *world_new(const FactorRows *spec)
{
    const size_t n_keys = (size_t)spec->n_fields * spec->n_values;
    const size_t width = (size_t)spec->n_factors * (spec->field_aware ? spec->n_fields : 1);
    const double n_pairs = spec->n_fields * (spec->n_fields - 1) / 2.0;
    World *world = g_new(World, 1);

    *world = (World){ .spec = spec,
                      .linear = g_new(float, n_keys),
                      .factors = g_new(float, n_keys *width),
                      .keys = g_new(uint32_t, spec->n_fields) };

    /* A pair's product has the variance n_factors × (a factor's)². */
    const double factor = sqrt(spec->pairs / sqrt(n_pairs * spec->n_factors));
    const double linear = spec->linear / sqrt(spec->n_fields);
    for (size_t i = 0; i < n_keys; i++)
        world->linear[i] = (float)(linear * normal(spec, FOR_LINEAR, i));
    for (size_t i = 0; i < n_keys * width; i++)
        world->factors[i] = (float)(factor * normal(spec, FOR_FACTOR, i));
    return world;
}

static void world_free(World *world)
{
    g_free(world->linear);
    g_free(world->factors);
    g_free(world->keys);
    g_free(world);
}

static const float *factors_of(const World *world, uint32_t field, uint32_t other)
{
    const FactorRows *spec = world->spec;
    const size_t key = world->keys[field];

    return world->factors +
           (spec->field_aware ? key * spec->n_fields + other : key) * spec->n_factors;
}

static void draw_row(World *world, uint64_t row)
{
    const FactorRows *spec = world->spec;
    const double skew = spec->skew > 0 ? spec->skew : 1;

    for (uint32_t field = 0; field < spec->n_fields; field++) {
        const double u = even(spec, FOR_VALUE, row * spec->n_fields + field);
        const uint32_t value = (uint32_t)(spec->n_values * pow(u, skew));

        world->keys[field] = field * spec->n_values + MIN(value, spec->n_values - 1);
    }
}

static double score_row(const World *world)
{
    const FactorRows *spec = world->spec;
    double score = 0;

    for (uint32_t i = 0; i < spec->n_fields; i++) {
        score += (double)world->linear[world->keys[i]];
        for (uint32_t j = i + 1; j < spec->n_fields; j++) {
            const float *v = factors_of(world, i, j), *u = factors_of(world, j, i);

            for (uint32_t f = 0; f < spec->n_factors; f++)
                score += (double)v[f] * (double)u[f];
        }
    }
    return score;
}

static double draw_label(const FactorRows *spec, uint64_t row, double score)
{
    if (spec->ratings)
        return score + 0.1 * normal(spec, FOR_LABEL, row);
    return even(spec, FOR_LABEL, row) < 1 / (1 + exp(-score)) ? 1 : -1;
}

static void print_row(const World *world, FILE *file, bool fields, double label)
{
    fprintf(file, "%.6g", label);
    for (uint32_t field = 0; field < world->spec->n_fields; field++)
        if (fields)
            fprintf(file, " %u:%u:1", field, world->keys[field] + 1);
        else
            fprintf(file, " %u:1", world->keys[field] + 1);
    putc('\n', file);
}

bool factor_rows_write(const FactorRows *spec, const char *path, uint64_t first, size_t n,
                       double *scores, double *labels)
{
    FILE *file = fopen(path, "w");

    if (file == NULL)
        return false;
    World *world = world_new(spec);
    for (size_t i = 0; i < n; i++) {
        draw_row(world, first + i);
        const double score = score_row(world);
        const double label = draw_label(spec, first + i, score);

        print_row(world, file, g_str_has_suffix(path, ".ffm"), label);
        if (scores != NULL)
            scores[i] = score;
        if (labels != NULL)
            labels[i] = label;
    }
    world_free(world);
    const bool good = ferror(file) == 0;
    return fclose(file) == 0 && good;
}
