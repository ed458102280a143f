/* Prints a line for each update rule, dtype and width: a checksum of all bits that it computes from
 * seeded rows and gradients, in runs and row by row, clipped, decayed and checked. Behind them it
 * prints such lines for the sums of a clock, for their means, for the exact sum of doubles, and for
 * normal deviates. */
#include <glib.h>
#include <rubato/mix.h>
#include <stdio.h>
#include <string.h>

#include "models/aggregate.h"
#include "models/handlers/exact_sum.h"
#include "models/normal.h"
#include "models/shard/shard.h"
#include "models/update/update.h"
#include "models/update/updater.h"

enum { N_ROWS = 9, N_ROUNDS = 8 };

static const uint32_t widths[] = { 1, 2, 7, 8, 15, 33, 100 };
static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };

static void fill(GRand *rand, RubatoDtype dtype, void *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (dtype) {
        case RUBATO_F32:
            ((float *)values)[i] = (float)g_rand_double_range(rand, -2, 2);
            break;
        case RUBATO_F64:
            ((double *)values)[i] = g_rand_double_range(rand, -2, 2);
            break;
        case RUBATO_I32:
            ((int32_t *)values)[i] = (int32_t)g_rand_int(rand);
            break;
        case RUBATO_I64:
            ((int64_t *)values)[i] = (int64_t)g_rand_int(rand) << 31 ^ g_rand_int(rand);
            break;
        case RUBATO_U8:  /* in ragged rows alone */
        case RUBATO_F16: /* the rest: of tensors alone */
        case RUBATO_BF16:
        case RUBATO_I8:
        case RUBATO_I16:
        case RUBATO_BOOL:
            break;
        }
}

/* One delta in some rounds is none that can be used. */
static void spoil(GRand *rand, RubatoDtype dtype, void *deltas, size_t n)
{
    const size_t at = g_rand_int(rand) % n;

    if (dtype == RUBATO_F32)
        ((float *)deltas)[at] = __builtin_nanf("");
    else if (dtype == RUBATO_F64)
        ((double *)deltas)[at] = __builtin_inf();
}

static void digest(const RubatoTableSpec *spec, const char *what)
{
    const size_t size = rubato_dtype_size(spec->dtype), width = spec->width;
    GRand *rand = g_rand_new_with_seed(17);
    Updater updater;

    if (!updater_init(&updater, spec))
        g_error("no memory");

    unsigned char *rows = g_malloc0(N_ROWS * updater.row_bytes);
    unsigned char *deltas = g_malloc(N_ROWS * width * size);
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    void *where[N_ROWS];
    uint32_t at[N_ROWS];

    for (size_t i = 0; i < N_ROWS; i++) {
        where[i] = rows + i * updater.row_bytes;
        at[i] = (uint32_t)(N_ROWS - 1 - i);
        fill(rand, spec->dtype, where[i], width);
        if (updater.ops->init_state != NULL)
            updater.ops->init_state(&updater.update, where[i]);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        fill(rand, spec->dtype, deltas, N_ROWS * width);
        if (round % 3 == 2)
            spoil(rand, spec->dtype, deltas, N_ROWS * width);
        if (round % 4 == 3)
            updater_apply_run(&updater, 0, rows, deltas, N_ROWS);
        else
            updater_apply_rows(&updater, 0, where, deltas, round % 2 == 0 ? NULL : at, N_ROWS);
        g_checksum_update(sum, rows, (gssize)(N_ROWS * updater.row_bytes));
    }
    printf("%s %s %u %s %s\n", spec->update, rubato_dtype_name(spec->dtype), spec->width, what,
           g_checksum_get_string(sum));
    updater_clear(&updater);
    g_free(rows);
    g_free(deltas);
    g_rand_free(rand);
}

static void digest_of(const char *rule, RubatoDtype dtype, uint32_t width, bool takes_gradients)
{
    RubatoTableSpec spec = {
        .name = "t", .update = rule, .dtype = dtype, .width = width, .n_keys = 1
    };

    digest(&spec, "as it is");
    if (!takes_gradients)
        return;
    spec.rule.on_bad_gradient = RUBATO_ON_BAD_GRADIENT_UNCHECKED;
    digest(&spec, "unchecked");
    spec.rule.on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE;
    spec.rule.clip_value = 0.9;
    spec.rule.clip_norm = 1.5;
    spec.rule.weight_decay = 0.01;
    digest(&spec, "clipped");
}

/* Three workers' gradients for some of the rows, in two clocks. */
static void digest_of_sums(RubatoDtype dtype, uint32_t width, RubatoAggregate kind)
{
    const RubatoTableSpec spec = { .name = "t",
                                   .update = "sgd",
                                   .dtype = dtype,
                                   .width = width,
                                   .n_keys = N_ROWS,
                                   .aggregate = kind };
    const size_t n_values = N_ROWS * width, size = rubato_dtype_size(dtype);
    GRand *rand = g_rand_new_with_seed(19);
    RubatoShard *shard = shard_new(&spec, 0, N_ROWS, NULL);
    Aggregate *aggregate = aggregate_new(&spec, shard);
    void *values = g_malloc0(n_values * size);

    for (uint32_t round = 0; round < 2 * 3; round++) {
        const RubatoRequest request = {
            .worker = round % 3,
            .keys = { .first = round % 3, .n = N_ROWS - round % 3 },
            .input = values,
        };

        fill(rand, dtype, values, n_values);
        if (!aggregate_take(aggregate, &request))
            g_error("no memory");
        if (round % 3 == 2)
            aggregate_apply(aggregate);
    }
    shard_get(shard, &(RubatoKeys){ .n = N_ROWS }, values);
    g_autofree char *sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, values, n_values * size);
    printf("%s %s %u %s\n", kind == RUBATO_AGGREGATE_MEAN ? "mean" : "sum",
           rubato_dtype_name(dtype), width, sum);
    g_free(values);
    aggregate_free(aggregate);
    shard_free(shard);
    g_rand_free(rand);
}

static void digest_of_exact_sum(size_t n)
{
    GRand *rand = g_rand_new_with_seed(23);
    ExactSum sum;
    double terms[EXACT_SUM_BLOCK], rounded;

    exact_sum_init(&sum);
    fill(rand, RUBATO_F64, terms, n);
    exact_sum_add_block(&sum, terms, n);
    rounded = exact_sum_round(&sum);
    printf("exact sum of %zu %a\n", n, rounded);
    g_rand_free(rand);
}

static void digest_of_deviates(size_t n)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    g_autofree double *deviates = g_new(double, n);

    for (uint64_t row = 0; row < 10000; row++) {
        normal_draw(rubato_mix64(row), row, n, deviates);
        g_checksum_update(sum, (const guchar *)deviates, (gssize)(n * sizeof *deviates));
    }
    printf("%zu normal deviates %s\n", n, g_checksum_get_string(sum));
}

int main(void)
{
    const char *rule;

    for (size_t r = 0; (rule = update_name(r)) != NULL; r++)
        for (size_t d = 0; d < G_N_ELEMENTS(dtypes); d++)
            for (size_t w = 0; w < G_N_ELEMENTS(widths); w++) {
                const RubatoUpdateOps *ops = update_find(rule);
                const bool is_real = dtypes[d] == RUBATO_F32 || dtypes[d] == RUBATO_F64;

                if (is_real || strcmp(rule, "add") == 0 || strcmp(rule, "assign") == 0)
                    digest_of(rule, dtypes[d], widths[w], ops->traits.takes_gradients);
            }
    for (size_t d = 0; d < 2; d++)
        for (size_t w = 0; w < G_N_ELEMENTS(widths); w++) {
            digest_of_sums(dtypes[d], widths[w], RUBATO_AGGREGATE_SUM);
            digest_of_sums(dtypes[d], widths[w], RUBATO_AGGREGATE_MEAN);
        }
    digest_of_exact_sum(EXACT_SUM_BLOCK);
    digest_of_exact_sum(EXACT_SUM_BLOCK - 1);
    for (size_t w = 0; w < G_N_ELEMENTS(widths); w++)
        digest_of_deviates(widths[w]);
    return 0;
}
