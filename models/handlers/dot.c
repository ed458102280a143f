/* The handler "dot": the product of two rows of a table, or of two tables.
 *
 * A call on keys has two keys, which may be equal, and no arguments. It gives the sum over columns
 * of the products of the two rows' values. A call on all rows of a table or part has the name of
 * another table as its arguments. Both tables must have the same keys, dtype, width, partition and
 * parts. It gives the sum over all rows and columns of the products of the two tables' values. The
 * result is one f64: the exact sum, rounded once.
 *
 * For two rows, each part sends the rows that it has, and the caller multiplies. For two tables,
 * each part multiplies, because the other table's part is on the same server: see
 * rubato_part_get_other.
 *
 * Thread: the part's owner; reduce: the caller. */
#include <rubato/error.h>
#include <string.h>

#include "models/handlers/values.h"

enum {
    MOST_NAME_BYTES = 4096,

    /* The other table's rows are read in blocks of at most this size, but of at least one row. */
    BLOCK_BYTES = 1 << 16,
    BLOCK_ROWS = 256,
};

static bool check(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error)
{
    const size_t n = rubato_byte_reader_left(arguments);

    if (setting->scope == RUBATO_SCOPE_KEYS)
        return rubato_byte_reader_finish(arguments,
                                         "its arguments, of which there are none for keys,", error);
    if (n >= 1 && n <= MOST_NAME_BYTES)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "it needs two keys, or the name of another table as its arguments");
    return false;
}

/* ---- of two rows ---- */

static bool write_rows(RubatoPart *part, RubatoByteWriter *result)
{
    const size_t row_bytes = spec_row_bytes(rubato_part_spec(part));
    RubatoPartRows rows;

    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            rubato_write(result, rubato_part_rows_row(&rows, i), row_bytes);
    return true;
}

/* Which of the two rows comes first does not matter. */
static bool reduce_rows(const RubatoTableSpec *spec, RubatoByteReader *results, size_t n,
                        RubatoByteWriter *result, GError **error)
{
    const size_t row_bytes = spec_row_bytes(spec);
    g_autofree char *rows = g_try_malloc_n(2, row_bytes);
    size_t n_rows = 0;
    ExactSum sum;

    if (rows == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for two rows");
        return false;
    }
    for (size_t i = 0; i < n; i++)
        while (rubato_byte_reader_left(&results[i]) > 0) {
            if (n_rows == 2 || !rubato_read(&results[i], rows + n_rows * row_bytes, row_bytes)) {
                n_rows = 3;
                break;
            }
            n_rows++;
        }
    if (n_rows != 2) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it needs two keys");
        return false;
    }
    exact_sum_init(&sum);
    exact_sum_add_dot(&sum, spec->dtype, rows, rows + row_bytes, spec_width(spec));
    rubato_write_f64(result, exact_sum_round(&sum));
    return true;
}

/* ---- of two tables ---- */

typedef struct {
    RubatoPart *part;
    char *table; /* the other one */
    size_t width, row_bytes;
    size_t most; /* rows at a time */
    RubatoKey *keys;
    char *values;
    ExactSum sum;
} Tables;

static bool add_rows(Tables *tables, const RubatoPartRows *rows, GError **error)
{
    const RubatoDtype dtype = rubato_part_spec(tables->part)->dtype;

    for (size_t begin = 0; begin < rows->n; begin += tables->most) {
        const size_t n = MIN(rows->n - begin, tables->most);

        for (size_t i = 0; i < n; i++)
            tables->keys[i] = rubato_part_rows_key(rows, begin + i);
        if (!rubato_part_get_other(tables->part, tables->table, tables->keys, n, tables->values,
                                   error))
            return false;
        for (size_t i = 0; i < n; i++)
            exact_sum_add_dot(&tables->sum, dtype, rubato_part_rows_row(rows, begin + i),
                              tables->values + i * tables->row_bytes, tables->width);
    }
    return true;
}

static bool run_tables(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                       GError **error)
{
    const RubatoTableSpec *spec = rubato_part_spec(part);
    const size_t n = rubato_byte_reader_left(arguments), row_bytes = spec_row_bytes(spec);
    const size_t most = CLAMP(BLOCK_BYTES / row_bytes, 1, BLOCK_ROWS);
    g_autofree char *table = g_strndup(rubato_read_bytes(arguments, n), n);
    g_autofree RubatoKey *keys = g_try_new(RubatoKey, most);
    g_autofree char *values = g_try_malloc_n(most, row_bytes);
    Tables tables = { .part = part,
                      .table = table,
                      .width = spec_width(spec),
                      .row_bytes = row_bytes,
                      .most = most,
                      .keys = keys,
                      .values = values };
    RubatoPartRows rows;

    if (keys == NULL || values == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for some rows");
        return false;
    }
    exact_sum_init(&tables.sum);
    /* even a part without rows says what is wrong with the other table */
    if (!rubato_part_get_other(part, table, NULL, 0, NULL, error))
        return false;
    while (rubato_part_next(part, &rows))
        if (!add_rows(&tables, &rows, error))
            return false;
    exact_sum_write(&tables.sum, result);
    return true;
}

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    return rubato_part_scope(part) == RUBATO_SCOPE_KEYS
               ? write_rows(part, result)
               : run_tables(part, arguments, result, error);
}

static bool reduce(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error)
{
    double total;

    (void)arguments;
    if (setting->scope == RUBATO_SCOPE_KEYS)
        return reduce_rows(setting->spec, results, n, result, error);
    if (!exact_sum_reduce(results, n, &total, error))
        return false;
    rubato_write_f64(result, total);
    return true;
}

extern const RubatoHandlerOps dot_handler_ops;

const RubatoHandlerOps dot_handler_ops = {
    .name = "dot",
    .access = RUBATO_ACCESS_READS,
    .check = check,
    .run = run,
    .reduce = reduce,
};
