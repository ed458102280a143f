/* See own_handlers.h. */
#include "tests/support/engine/own_handlers.h"

#include <check.h>

Event own_handler_entered = EVENT_INIT, own_handler_leave = EVENT_INIT;

bool own_handler_echo(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    const size_t n = rubato_byte_reader_left(arguments);

    (void)error;
    rubato_write_u32(result, rubato_part_number(part));
    rubato_write_u64(result, n);
    rubato_write(result, rubato_read_bytes(arguments, n), n);
    return true;
}

bool own_handler_fail(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    (void)result;
    if (rubato_part_number(part) != rubato_read_u32(arguments))
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it does not like this part");
    return false;
}

static bool run_keys(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    RubatoPartRows rows;

    (void)arguments;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            rubato_write_u64(result, rubato_part_rows_key(&rows, i));
            rubato_write_i64(result, *(const int64_t *)rubato_part_rows_row(&rows, i));
        }
    return true;
}

static bool run_rows(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const RubatoTableSpec *const spec = rubato_part_spec(part);
    const size_t row_bytes = MAX(spec->width, 1) * rubato_dtype_size(spec->dtype);
    RubatoPartRows rows;

    (void)arguments;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            rubato_write_u64(result, rubato_part_rows_key(&rows, i));
            rubato_write(result, rubato_part_rows_row(&rows, i), row_bytes);
        }
    return true;
}

/* Key by key, so that one that is repeated counts as often. */
static bool run_increase(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                         GError **error)
{
    const RubatoTableSpec *const spec = rubato_part_spec(part);
    const uint32_t width = MAX(spec->width, 1);
    const int64_t unit = rubato_read_i64(arguments);
    g_autofree char *deltas = g_malloc(width * rubato_dtype_size(spec->dtype));
    RubatoPartRows rows;

    (void)result;
    for (uint32_t column = 0; column < width; column++)
        value_store(spec->dtype, deltas, column, unit * (column + 1));
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const RubatoKey key = rubato_part_rows_key(&rows, i);

            if (!rubato_part_add(part, &key, 1, deltas, error))
                return false;
        }
    return true;
}

static bool run_loop(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    event_raise(&own_handler_entered);
    event_wait(&own_handler_leave, 1);
    return true;
}

void register_handlers(const RubatoHandlerOps *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert(rubato_register_handler(&ops[i], NULL));
}

void own_handlers_register(void)
{
    static const RubatoHandlerOps ops[] = {
        { .name = "echo", .run = own_handler_echo },
        { .name = "fail", .run = own_handler_fail },
        { .name = "keys", .run = run_keys },
        { .name = "rows", .run = run_rows },
        { .name = "increase", .access = RUBATO_ACCESS_WRITES, .run = run_increase },
        { .name = "loop", .run = run_loop },
    };

    register_handlers(ops, G_N_ELEMENTS(ops));
}
