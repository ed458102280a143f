/* A plug-in file of an outside project: a handler, an admission, and an expiry that tells how much
 * a row is worth.
 *
 * Threads: the shard's present owner; `reduce`: the caller. */
#include <rubato/plugin.h>
#include <string.h>

/* ---- the handler "largest": the largest value of the rows; f32 ---- */

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const uint32_t width = MAX(1, spec->width);
    float largest = 0;
    RubatoPartRows rows;

    (void)arguments;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const float *row = rubato_part_rows_row(&rows, i);

            for (uint32_t j = 0; j < width; j++)
                largest = MAX(largest, row[j]);
        }
    return rubato_write_f64(result, (double)largest);
}

static bool reduce(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error)
{
    double largest = 0;

    (void)setting;
    (void)arguments;
    (void)error;
    for (size_t i = 0; i < n; i++) {
        const double value = rubato_read_f64(&results[i]);

        largest = MAX(largest, value);
    }
    return rubato_write_f64(result, largest);
}

static const RubatoHandlerOps largest_ops = {
    .name = "largest", .access = RUBATO_ACCESS_READS, .run = run, .reduce = reduce
};

/* ---- the admission "even": keys that are even have rows ---- */

static bool admits(RubatoAdmission *admission, RubatoKey key)
{
    (void)admission;
    return key % 2 == 0;
}

static const RubatoAdmissionOps even_ops = { .name = "even", .admits = admits };

/* ---- the expiry "small": rows below 2 expire when they have not been written for two clocks; a
 * row is worth its first value ---- */

static bool expires(const RubatoTableSpec *spec, RubatoKey key, const void *values, uint32_t age)
{
    float value;

    (void)spec;
    (void)key;
    memcpy(&value, values, sizeof value);
    return age >= 2 && value < 2;
}

static double score(const RubatoTableSpec *spec, const void *values, uint32_t age)
{
    float value;

    (void)spec;
    (void)age;
    memcpy(&value, values, sizeof value);
    return (double)value;
}

static const RubatoExpiryOps small_ops = {
    .name = "small", .unit = RUBATO_TIME_CLOCKS, .expires = expires, .score = score
};

bool rubato_plugin_register(GError **error)
{
    return rubato_register_handler(&largest_ops, error) &&
           rubato_register_admission(&even_ops, error) && rubato_register_expiry(&small_ops, error);
}
