/* The handler "histogram": how many values lie in each of n equal steps from low to high.
 *
 * Arguments: f64 low, f64 high, u32 n (1 to 2^20). The result: u64 below low, u64 at or above high,
 * u64 NaNs, then n counts, u64 each. A value v from low to below high belongs to count i, which is
 * (v - low) × n / (high - low) as a double, rounded down, and at most n - 1.
 *
 * Thread: the part's owner; reduce: the caller. */
#include <rubato/error.h>

#include "models/handlers/values.h"

enum {
    MOST_STEPS = 1 << 20,
    N_OUTSIDE = 3, /* below, above, NaN */
};

typedef struct {
    double low, high;
    uint32_t n;
} Steps;

static Steps read_steps(RubatoByteReader *arguments)
{
    Steps steps;

    steps.low = rubato_read_f64(arguments);
    steps.high = rubato_read_f64(arguments);
    steps.n = rubato_read_u32(arguments);
    return steps;
}

static bool check(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error)
{
    const Steps steps = read_steps(arguments);

    (void)setting;
    if (!rubato_byte_reader_finish(arguments, "its arguments, f64 low, f64 high, u32 steps,",
                                   error))
        return false;
    if (steps.n >= 1 && steps.n <= MOST_STEPS && steps.low < steps.high &&
        isfinite(steps.high - steps.low))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "it needs 1 to %d steps from a low number to a higher one, and got %u from %g to "
                "%g",
                MOST_STEPS, steps.n, steps.low, steps.high);
    return false;
}

static size_t find_count(const Steps *steps, double value)
{
    if (isnan(value))
        return 2;
    if (value < steps->low)
        return 0;
    if (value >= steps->high)
        return 1;
    const double at = (value - steps->low) * steps->n / (steps->high - steps->low);

    return N_OUTSIDE + MIN((size_t)at, steps->n - 1u);
}

/* The counts of n steps; NULL with RUBATO_ERROR_MEMORY. */
static uint64_t *new_counts(uint32_t n, GError **error)
{
    uint64_t *counts = g_try_new0(uint64_t, N_OUTSIDE + (size_t)n);

    if (counts == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %u counts", n);
    return counts;
}

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const Steps steps = read_steps(arguments);
    const size_t width = spec_width(spec);
    g_autofree uint64_t *counts = new_counts(steps.n, error);
    RubatoPartRows rows;

    if (counts == NULL)
        return false;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            for (size_t column = 0; column < width; column++)
                counts[find_count(
                    &steps,
                    value_as_double(spec->dtype, rubato_part_rows_row(&rows, i), column))]++;
    rubato_write(result, counts, (N_OUTSIDE + (size_t)steps.n) * sizeof *counts);
    return true;
}

static bool reduce(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error)
{
    const Steps steps = read_steps(arguments);
    g_autofree uint64_t *counts = new_counts(steps.n, error);

    (void)setting;
    if (counts == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < N_OUTSIDE + (size_t)steps.n; j++)
            counts[j] += rubato_read_u64(&results[i]);
        if (!rubato_byte_reader_finish(&results[i], "a part's counts", error))
            return false;
    }
    rubato_write(result, counts, (N_OUTSIDE + (size_t)steps.n) * sizeof *counts);
    return true;
}

extern const RubatoHandlerOps histogram_handler_ops;

const RubatoHandlerOps histogram_handler_ops = {
    .name = "histogram",
    .access = RUBATO_ACCESS_READS,
    .check = check,
    .run = run,
    .reduce = reduce,
};
