/* The handler "count": how many rows there are, and how many of their values are not zero.
 *
 * No arguments. The result: u64 rows, u64 values that are not zero (a NaN is not).
 *
 * Thread: the part's owner; reduce: the caller. */
#include "models/handlers/values.h"

#define DEFINE_COUNT(suffix, type)                               \
    static uint64_t count_##suffix(const type *values, size_t n) \
    {                                                            \
        uint64_t count = 0;                                      \
                                                                 \
        for (size_t i = 0; i < n; i++)                           \
            count += values[i] != 0;                             \
        return count;                                            \
    }

DEFINE_COUNT(f32, float)
DEFINE_COUNT(f64, double)
DEFINE_COUNT(i32, int32_t)
DEFINE_COUNT(i64, int64_t)

static uint64_t count_values(RubatoDtype dtype, const void *values, size_t n)
{
    switch (dtype) {
    case RUBATO_F32:
        return count_f32(values, n);
    case RUBATO_F64:
        return count_f64(values, n);
    case RUBATO_I32:
        return count_i32(values, n);
    case RUBATO_I64:
        return count_i64(values, n);
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
    return 0;
}

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const size_t width = spec_width(spec), row_bytes = spec_row_bytes(spec);
    uint64_t n_rows = 0, n_values = 0;
    RubatoPartRows rows;

    (void)arguments;
    (void)error;
    while (rubato_part_next(part, &rows)) {
        n_rows += rows.n;
        if (rows.rows == NULL && rows.stride_bytes == row_bytes)
            n_values += count_values(spec->dtype, rows.run, rows.n * width);
        else
            for (size_t i = 0; i < rows.n; i++)
                n_values += count_values(spec->dtype, rubato_part_rows_row(&rows, i), width);
    }
    rubato_write_u64(result, n_rows);
    rubato_write_u64(result, n_values);
    return true;
}

static bool reduce(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error)
{
    uint64_t n_rows = 0, n_values = 0;

    (void)setting;
    (void)arguments;
    for (size_t i = 0; i < n; i++) {
        n_rows += rubato_read_u64(&results[i]);
        n_values += rubato_read_u64(&results[i]);
        if (!rubato_byte_reader_finish(&results[i], "a part's counts", error))
            return false;
    }
    rubato_write_u64(result, n_rows);
    rubato_write_u64(result, n_values);
    return true;
}

extern const RubatoHandlerOps count_handler_ops;

const RubatoHandlerOps count_handler_ops = {
    .name = "count",
    .access = RUBATO_ACCESS_READS,
    .check = handler_has_no_arguments,
    .run = run,
    .reduce = reduce,
};
