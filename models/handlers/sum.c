/* The handlers "sum" and "norm": the sum of all values, and the root of the sum of their squares.
 *
 * No arguments. The result is one f64: the exact sum, rounded once, and for "norm" its root. So it
 * is the same however the rows are divided among parts and servers.
 *
 * Thread: the part's owner; reduce: the caller. */
#include "models/handlers/values.h"

static void add_squares(ExactSum *sum, RubatoDtype dtype, const void *values, size_t n)
{
    exact_sum_add_dot(sum, dtype, values, values, n);
}

static bool run(RubatoPart *part, RubatoByteWriter *result,
                void (*add)(ExactSum *sum, RubatoDtype dtype, const void *values, size_t n))
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const size_t width = spec_width(spec), row_bytes = spec_row_bytes(spec);
    ExactSum sum;
    RubatoPartRows rows;

    exact_sum_init(&sum);
    while (rubato_part_next(part, &rows))
        if (rows.rows == NULL && rows.stride_bytes == row_bytes)
            add(&sum, spec->dtype, rows.run, rows.n * width);
        else
            for (size_t i = 0; i < rows.n; i++)
                add(&sum, spec->dtype, rubato_part_rows_row(&rows, i), width);
    exact_sum_write(&sum, result);
    return true;
}

static bool run_sum(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    (void)arguments;
    (void)error;
    return run(part, result, exact_sum_add_values);
}

static bool run_norm(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    (void)arguments;
    (void)error;
    return run(part, result, add_squares);
}

static bool reduce_sum(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                       RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                       GError **error)
{
    double total;

    (void)setting;
    (void)arguments;
    if (!exact_sum_reduce(results, n, &total, error))
        return false;
    rubato_write_f64(result, total);
    return true;
}

static bool reduce_norm(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                        RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                        GError **error)
{
    double total;

    (void)setting;
    (void)arguments;
    if (!exact_sum_reduce(results, n, &total, error))
        return false;
    rubato_write_f64(result, sqrt(total));
    return true;
}

extern const RubatoHandlerOps sum_handler_ops, norm_handler_ops;

const RubatoHandlerOps sum_handler_ops = {
    .name = "sum",
    .access = RUBATO_ACCESS_READS,
    .check = handler_has_no_arguments,
    .run = run_sum,
    .reduce = reduce_sum,
};

const RubatoHandlerOps norm_handler_ops = {
    .name = "norm",
    .access = RUBATO_ACCESS_READS,
    .check = handler_has_no_arguments,
    .run = run_norm,
    .reduce = reduce_norm,
};
