/* Shards: gathering and scattering rows.
 *
 * Two ways. Where the storage gives out its whole range (`rows` is set), the row of a key is a
 * matter of arithmetic and the loops run over the keys themselves; rows of 4 and 8 bytes have loops
 * of their own, for a load costs less than a call of memcpy. Otherwise keys go to the storage in
 * blocks, which it finds with its memory accesses overlapped.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard.h"

#include <assert.h>
#include <string.h>

#include "models/init.h"
#include "models/keys.h"
#include "models/spec.h"
#include "models/storage.h"
#include "models/update.h"

#define BLOCK RUBATO_STORAGE_BLOCK
#define ADD_BLOCK 32u      /* keys; measured: their rows are still at hand when they are added to */
#define PREFETCH_AHEAD 64u /* keys; enough to cover a miss, few enough to stay in the cache */

struct RubatoShard {
    /* immutable */
    RubatoDtype dtype;
    uint32_t width;
    size_t row_bytes;
    bool create_on_get;
    bool is_dense;
    RubatoKey first_key;
    uint64_t n_keys;
    const RubatoStorageOps *ops;
    const RubatoUpdateOps *update;
    RubatoInit init;
    unsigned char *rows; /* that of first_key, all others following; NULL: ask the storage */

    RubatoStorage *storage;
};

RubatoShard *shard_new(const RubatoTableSpec *spec, RubatoKey first_key, uint64_t n_keys,
                       GError **error)
{
    RubatoShard *shard = g_new0(RubatoShard, 1);

    shard->dtype = spec->dtype;
    shard->width = spec_width(spec);
    shard->row_bytes = spec_row_bytes(spec);
    shard->create_on_get = spec->create_on_get;
    shard->is_dense = spec_is_dense(spec);
    shard->first_key = first_key;
    shard->n_keys = n_keys;
    shard->ops = storage_find(spec_storage_name(spec));
    shard->update = update_find(spec_update_name(spec));
    init_prepare(&shard->init, spec);

    const RubatoStorageSetup setup = {
        .spec = spec,
        .first_key = first_key,
        .n_keys = n_keys,
        .row_bytes = shard->row_bytes,
        .init = &shard->init,
    };
    shard->storage = shard->ops->create(&setup, error);
    if (shard->storage == NULL) {
        g_free(shard);
        return NULL;
    }
    shard->storage->ops = shard->ops;
    shard->rows = shard->ops->run(shard->storage, first_key, (size_t)n_keys);
    return shard;
}

void shard_free(RubatoShard *shard)
{
    if (shard == NULL)
        return;
    shard->ops->destroy(shard->storage);
    g_free(shard);
}

size_t shard_row_bytes(const RubatoShard *shard)
{
    return shard->row_bytes;
}

void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes)
{
    shard->ops->size(shard->storage, n_rows, n_bytes);
}

bool shard_keys_ok(const RubatoShard *shard, const RubatoKeys *keys)
{
    if (keys->keys == NULL) {
        const uint64_t offset = keys->first - shard->first_key;

        if (keys->n == 0)
            return true;
        if (!shard->is_dense)
            return keys->n - 1 <= UINT64_MAX - keys->first;
        return offset < shard->n_keys && keys->n <= shard->n_keys - offset;
    }
    if (!shard->is_dense)
        return true;

    bool ok = true; /* no early way out: wrong keys are rare, and the loop vectorises */
    if (keys->at == NULL)
        for (size_t i = 0; i < keys->n; i++)
            ok &= keys->keys[i] - shard->first_key < shard->n_keys;
    else
        for (size_t i = 0; i < keys->n; i++)
            ok &= keys->keys[keys->at[i]] - shard->first_key < shard->n_keys;
    return ok;
}

static unsigned char *dense_row(const RubatoShard *shard, RubatoKey key)
{
    assert(key - shard->first_key < shard->n_keys);
    return shard->rows + (key - shard->first_key) * shard->row_bytes;
}

/* Gathers rows of `bytes` bytes; called with a constant for the narrow ones. Everything that the loop
 * needs is in locals, for a store of bytes might change any member. */
static inline __attribute__((always_inline)) void gather(const RubatoShard *shard,
                                                         const RubatoKeys *keys,
                                                         unsigned char *restrict values,
                                                         size_t bytes)
{
    const unsigned char *restrict rows = shard->rows;
    const RubatoKey *restrict list = keys->keys;
    const uint32_t *restrict at = keys->at;
    const RubatoKey first_key = shard->first_key;
    const size_t n = keys->n;

    const size_t n_ahead = n > PREFETCH_AHEAD ? n - PREFETCH_AHEAD : 0;
    size_t i = 0;

    if (at == NULL) {
        for (; i < n_ahead; i++) {
            __builtin_prefetch(rows + (list[i + PREFETCH_AHEAD] - first_key) * bytes);
            memcpy(values + i * bytes, rows + (list[i] - first_key) * bytes, bytes);
        }
        for (; i < n; i++)
            memcpy(values + i * bytes, rows + (list[i] - first_key) * bytes, bytes);
    } else {
        for (; i < n_ahead; i++) {
            __builtin_prefetch(rows + (list[at[i + PREFETCH_AHEAD]] - first_key) * bytes);
            memcpy(values + at[i] * bytes, rows + (list[at[i]] - first_key) * bytes, bytes);
        }
        for (; i < n; i++)
            memcpy(values + at[i] * bytes, rows + (list[at[i]] - first_key) * bytes, bytes);
    }
}

static void get_dense(const RubatoShard *shard, const RubatoKeys *keys, unsigned char *values)
{
    if (keys->keys == NULL) {
        if (keys->n > 0)
            memcpy(values, dense_row(shard, keys->first), keys->n * shard->row_bytes);
    } else if (shard->row_bytes == 4) {
        gather(shard, keys, values, 4);
    } else if (shard->row_bytes == 8) {
        gather(shard, keys, values, 8);
    } else {
        gather(shard, keys, values, shard->row_bytes);
    }
}

static void add_dense(const RubatoShard *shard, const RubatoKeys *keys, const unsigned char *deltas)
{
    const RubatoUpdateOps *update = shard->update;
    void *rows[ADD_BLOCK];

    if (keys->keys == NULL) {
        if (keys->n > 0)
            update->apply(shard->dtype, dense_row(shard, keys->first), deltas,
                          keys->n * shard->width);
        return;
    }
    if (keys->n == 1) {
        update->apply(shard->dtype, dense_row(shard, keys_get(keys, 0)),
                      deltas + keys_row(keys, 0) * shard->row_bytes, shard->width);
        return;
    }
    for (size_t begin = 0; begin < keys->n; begin += ADD_BLOCK) {
        const size_t n = MIN(keys->n - begin, ADD_BLOCK);

        for (size_t i = 0; i < n; i++) {
            rows[i] = dense_row(shard, keys_get(keys, begin + i));
            __builtin_prefetch(rows[i], 1);
        }
        if (keys->at == NULL)
            update->apply_rows(shard->dtype, shard->width, rows, deltas + begin * shard->row_bytes,
                               NULL, n);
        else
            update->apply_rows(shard->dtype, shard->width, rows, deltas, keys->at + begin, n);
    }
}

/* The next block of a request's keys, one after the other: where they lie, or copied to `block`. */
static const RubatoKey *take_block(const RubatoKeys *keys, size_t begin, size_t n, RubatoKey *block)
{
    if (keys->keys != NULL && keys->at == NULL)
        return keys->keys + begin;
    for (size_t i = 0; i < n; i++)
        block[i] = keys_get(keys, begin + i);
    return block;
}

/* Copies what the storage has found of a block of keys; called with a constant for narrow rows.
 * Value i goes to row i of `values`, or to row at[i]. */
static inline __attribute__((always_inline)) void copy_found(
    const RubatoShard *shard, const RubatoKey *keys, void *const *restrict rows, size_t n,
    const uint32_t *restrict at, unsigned char *restrict values, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char *value = values + (at == NULL ? i : at[i]) * bytes;

        if (rows[i] != NULL)
            memcpy(value, rows[i], bytes);
        else
            rubato_init_row(&shard->init, keys[i], value);
    }
}

static void get_found(RubatoShard *shard, const RubatoKeys *keys, unsigned char *values)
{
    const uint32_t *at = keys->keys == NULL ? NULL : keys->at;
    const size_t row_bytes = shard->row_bytes;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = take_block(keys, begin, n, block);
        unsigned char *to = at == NULL ? values + begin * row_bytes : values;
        const uint32_t *some_at = at == NULL ? NULL : at + begin;

        if (shard->create_on_get)
            shard->ops->find_or_create(shard->storage, some, n, rows);
        else
            shard->ops->find(shard->storage, some, n, rows);
        if (row_bytes == 4)
            copy_found(shard, some, rows, n, some_at, to, 4);
        else if (row_bytes == 8)
            copy_found(shard, some, rows, n, some_at, to, 8);
        else
            copy_found(shard, some, rows, n, some_at, to, row_bytes);
    }
}

static void add_found(RubatoShard *shard, const RubatoKeys *keys, const unsigned char *deltas)
{
    const bool is_selection = keys->keys != NULL && keys->at != NULL;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = take_block(keys, begin, n, block);

        shard->ops->find_or_create(shard->storage, some, n, rows);
        if (is_selection)
            shard->update->apply_rows(shard->dtype, shard->width, rows, deltas, keys->at + begin,
                                      n);
        else
            shard->update->apply_rows(shard->dtype, shard->width, rows,
                                      deltas + begin * shard->row_bytes, NULL, n);
    }
}

void shard_get(RubatoShard *shard, const RubatoKeys *keys, void *values)
{
    if (shard->rows != NULL)
        get_dense(shard, keys, values);
    else
        get_found(shard, keys, values);
}

void shard_add(RubatoShard *shard, const RubatoKeys *keys, const void *deltas)
{
    if (shard->rows != NULL)
        add_dense(shard, keys, deltas);
    else
        add_found(shard, keys, deltas);
}
