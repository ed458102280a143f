/* A worker's rows in batches. The order of an epoch depends on seed and epoch alone (Fisher and
 * Yates's shuffle, with numbers that are hashes of their places), so a run that goes on from a
 * snapshot has the same. */
#include "apps/mlp/mlp_share.h"

#include <rubato/mix.h>
#include <string.h>

#define NO_EPOCH UINT64_MAX

bool mlp_share_init(MlpShare *share, uint64_t seed, GError **error)
{
    share->seed = seed;
    share->epoch = NO_EPOCH;
    if (share->rows.n_rows < UINT32_MAX)
        share->order = g_try_new(uint32_t, share->rows.n_rows + 1);
    if (share->order == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the order of %zu rows; take more workers", share->rows.n_rows);
    return share->order != NULL;
}

void mlp_share_clear(MlpShare *share)
{
    app_dense_clear(&share->rows);
    g_clear_pointer(&share->order, g_free);
}

static void shuffle(MlpShare *share, uint64_t epoch)
{
    const uint64_t key = rubato_mix64(share->seed ^ rubato_mix64(epoch + 1));
    const uint32_t n = (uint32_t)share->rows.n_rows;

    if (share->epoch == epoch)
        return;
    share->epoch = epoch;
    for (uint32_t i = 0; i < n; i++)
        share->order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t other = (uint32_t)(rubato_mix64(key + i) % i);
        const uint32_t row = share->order[i - 1];

        share->order[i - 1] = share->order[other];
        share->order[other] = row;
    }
}

/* Steps divide the rows as evenly as can be. */
static size_t first_of(const MlpShare *share, uint64_t steps_of_epoch, uint64_t step)
{
    return (size_t)((uint64_t)share->rows.n_rows * step / steps_of_epoch);
}

size_t mlp_share_most(const MlpShare *share, uint64_t steps_of_epoch)
{
    return (size_t)(share->rows.n_rows / steps_of_epoch) + 1;
}

size_t mlp_share_count(const MlpShare *share, uint64_t steps_of_epoch, uint64_t step)
{
    const uint64_t place = step % steps_of_epoch;

    return first_of(share, steps_of_epoch, place + 1) - first_of(share, steps_of_epoch, place);
}

size_t mlp_share_take(MlpShare *share, uint64_t steps_of_epoch, uint64_t step, float *rows,
                      float *labels)
{
    const size_t first = first_of(share, steps_of_epoch, step % steps_of_epoch);
    const size_t n = mlp_share_count(share, steps_of_epoch, step);
    const size_t n_columns = share->rows.n_columns;

    shuffle(share, step / steps_of_epoch);
    for (size_t i = 0; i < n; i++) {
        const size_t row = share->order[first + i];

        memcpy(rows + i * n_columns, share->rows.values + row * n_columns,
               n_columns * sizeof *rows);
        labels[i] = share->rows.labels[row];
    }
    return n;
}
