/* The rule "assign": value = delta. The last one stays.
 *
 * Thread: the shard's present owner. */
#include <rubato/update_ops.h>
#include <string.h>

static void apply(const RubatoUpdate *update, void *values, const void *deltas, size_t n_values)
{
    memcpy(values, deltas, n_values * rubato_dtype_size(update->dtype));
}

static void apply_rows(const RubatoUpdate *update, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n)
{
    const size_t row_bytes = update->width * rubato_dtype_size(update->dtype);
    const unsigned char *bytes = deltas;

    for (size_t i = 0; i < n; i++) {
        const unsigned char *delta = bytes + (at == NULL ? i : at[i]) * row_bytes;

        /* constant sizes are moved by one instruction */
        if (row_bytes == 4)
            memcpy(rows[i], delta, 4);
        else if (row_bytes == 8)
            memcpy(rows[i], delta, 8);
        else
            memcpy(rows[i], delta, row_bytes);
    }
}

const RubatoUpdateOps assign_update_ops = {
    .name = "assign",
    .traits = { .replayable = true },
    .apply = apply,
    .apply_rows = apply_rows,
};
