/* The handler "scale": multiplies all values by a factor, without the update rule.
 *
 * Argument: f64 factor, which is rounded to the table's dtype. For f32 and f64.
 *
 * Thread: the part's owner. */
#include <rubato/error.h>

#include "models/handlers/values.h"

static bool check(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error)
{
    const RubatoDtype dtype = setting->spec->dtype;
    const double factor = rubato_read_f64(arguments);

    if (!rubato_byte_reader_finish(arguments, "its arguments, one f64,", error))
        return false;
    if (dtype != RUBATO_F32 && dtype != RUBATO_F64) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TYPE,
                    "it scales f32 and f64, and the table holds %s", rubato_dtype_name(dtype));
        return false;
    }
    if (!isfinite(factor)) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "its factor has to be a finite number");
        return false;
    }
    return true;
}

static void scale_f32(float *values, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] *= factor;
}

static void scale_f64(double *values, double factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] *= factor;
}

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const double factor = rubato_read_f64(arguments);
    const size_t width = spec_width(spec);
    RubatoPartRows rows;

    (void)result;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            if (spec->dtype == RUBATO_F32)
                scale_f32(rubato_part_rows_row(&rows, i), (float)factor, width);
            else
                scale_f64(rubato_part_rows_row(&rows, i), factor, width);
    return true;
}

extern const RubatoHandlerOps scale_handler_ops;

const RubatoHandlerOps scale_handler_ops = {
    .name = "scale",
    .access = RUBATO_ACCESS_WRITES,
    .check = check,
    .run = run,
};
