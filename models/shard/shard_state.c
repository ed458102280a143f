/* Shards: calls that do not use the update rule, and calls about other things than rows.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/far_copy.h"
#include "models/shard/shard_private.h"
#include "models/update/rule.h"

bool shard_tuning_ok(const RubatoShard *shard, const RubatoTuning *tuning)
{
    return (uint32_t)tuning->hyper < N_HYPERS &&
           rule_check_tuning(shard->spec, tuning->hyper, tuning->value, NULL);
}

void shard_tune(RubatoShard *shard, const RubatoTuning *tuning)
{
    updater_tune(&shard->updater, tuning->hyper, tuning->value);
}

bool shard_tuned(const RubatoShard *shard, RubatoHyper hyper, double *value)
{
    const RubatoRule told = rule_resolve(shard->spec);

    *value = rule_get(&shard->updater.update.rule, hyper);
    return *value != rule_get(&told, hyper);
}

void shard_set_bad_gradients(RubatoShard *shard, uint32_t first, uint32_t n,
                             const BadCounts *counts)
{
    bad_gradients_set(&shard->updater.bad, first, n, counts);
}

/* Rows that lie one behind the other, as all of a restored dense table do. */
static void set_dense_run(RubatoShard *shard, const RubatoKeys *keys, const unsigned char *values)
{
    unsigned char *row;

    if (keys->n == 0)
        return;
    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, keys);
    row = shard_dense_row(shard, keys->first);
    if (shard->stride == shard->row_bytes)
        far_copy(row, values, keys->n * shard->row_bytes);
    else
        for (size_t i = 0; i < keys->n; i++, row += shard->stride) {
            shard_copy_row(row, values + i * shard->row_bytes, shard->row_bytes);
            init_state(&shard->init, row);
        }
}

void shard_set(RubatoShard *shard, const RubatoKeys *keys, const void *values)
{
    const unsigned char *from = values;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    if (shard->rows != NULL && keys->keys == NULL) {
        set_dense_run(shard, keys, values);
        return;
    }
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        if (!shard_find_or_create(shard, shard_take_block(keys, begin, n, block), n, rows))
            return;
        for (size_t i = 0; i < n; i++) {
            shard_copy_row(rows[i], from + keys_row(keys, begin + i) * shard->row_bytes,
                           shard->row_bytes);
            if (shard->stride > shard->row_bytes)
                init_state(&shard->init, rows[i]);
        }
    }
}

void shard_reset(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    if (shard->is_watched)
        shard_watch(shard, keys);
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        shard_find(shard, some, n, rows);
        for (size_t i = 0; i < n; i++)
            if (rows[i] != NULL)
                rubato_init_row(&shard->init, some[i], rows[i]);
    }
}

/* The state of a row, or of a new one. A row that has expired has the state of a new one, as it has
 * its values, but its own stamp: so it has expired, too, where it moves to. */
static const unsigned char *state_of(const RubatoShard *shard, RubatoKey key, void *row,
                                     unsigned char *fresh)
{
    void *shown = row;

    if (shard->expiry != NULL)
        shard_hide_expired(shard, &key, 1, &shown);
    if (shown == NULL) {
        rubato_init_row(&shard->init, key, fresh);
        if (row != NULL)
            shard_copy_stamp(shard, row, fresh);
        shown = fresh;
    }
    return (const unsigned char *)shown + shard->row_bytes;
}

void shard_get_state(RubatoShard *shard, const RubatoKeys *keys, void *states)
{
    const size_t bytes = shard->stride - shard->row_bytes;
    g_autofree unsigned char *fresh = g_try_malloc(shard->stride);
    unsigned char *to = states;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    if (fresh == NULL) {
        shard_starve(shard);
        return;
    }
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        if (shard->expiry != NULL)
            shard->ops->find(shard->storage, some, n, rows);
        else
            shard_find(shard, some, n, rows);
        for (size_t i = 0; i < n; i++)
            memcpy(to + keys_row(keys, begin + i) * bytes, state_of(shard, some[i], rows[i], fresh),
                   bytes);
    }
}

void shard_set_state(RubatoShard *shard, const RubatoKeys *keys, const void *states)
{
    const size_t bytes = shard->stride - shard->row_bytes;
    const unsigned char *from = states;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        if (shard->bounded != NULL || shard->admission != NULL) { /* state makes no row */
            if (shard->is_watched)
                shard_watch(shard, &(RubatoKeys){ .keys = some, .n = n });
            shard_find(shard, some, n, rows);
        } else if (!shard_find_or_create(shard, some, n, rows))
            return;
        for (size_t i = 0; i < n; i++)
            if (rows[i] != NULL)
                memcpy((unsigned char *)rows[i] + shard->row_bytes,
                       from + keys_row(keys, begin + i) * bytes, bytes);
        if (shard->expiry != NULL)
            shard_reach_stamps(shard, rows, n);
    }
}

bool shard_can_list(const RubatoShard *shard)
{
    return shard->ops->list != NULL;
}

void shard_list(const RubatoShard *shard, uint64_t first, size_t n, RubatoKey *keys)
{
    if (n > 0)
        shard->ops->list(shard->storage, first, n, keys);
}

size_t shard_leave_out_absent(RubatoShard *shard, RubatoKey *keys, size_t n)
{
    void *rows[BLOCK];
    size_t n_left = 0;

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(n - begin, BLOCK);

        if (shard->ahead != NULL && !shard->is_dense)
            shard->ops->find(shard->storage, keys + begin, some, rows);
        else
            shard_find(shard, keys + begin, some, rows);
        for (size_t i = 0; i < some; i++) {
            const RubatoKey key = keys[begin + i];

            keys[n_left] = key;
            n_left += rows[i] != NULL;
        }
    }
    return n_left;
}

const BadGradients *shard_bad_gradients(const RubatoShard *shard)
{
    return &shard->updater.bad;
}
