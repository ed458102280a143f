/* Shards: gathering and scattering rows.
 *
 * There are two ways. If the storage exposes its whole range (`rows` is set), a row's address is
 * computed from its key and the loops run over the keys. Rows of 4 and 8 bytes have loops of their
 * own, because a load costs less than a call of memcpy. Otherwise the storage finds the keys in
 * blocks, with overlapped memory accesses.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/shard.h"

#include <rubato/error.h>

#include "io/net/link/key_range.h"
#include "models/ragged/ragged.h"
#include "models/shard/ahead.h"
#include "models/shard/changes.h"
#include "models/shard/image.h"
#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/storage/storage.h"

#define ADD_BLOCK 32u      /* keys; measured: their rows are still cached when deltas are added */
#define MANY_KEYS 1000u    /* whose rows are likely to be in no near cache */
#define PREFETCH_AHEAD 64u /* keys; enough to cover a miss, few enough to stay in the cache */

static void find_ragged(void *shard, const RubatoKey *keys, size_t n, RaggedRow **rows)
{
    void *found[RAGGED_FIND_MOST];

    shard_find(shard, keys, n, found);
    for (size_t i = 0; i < n; i++)
        rows[i] = found[i];
}

RubatoShard *shard_new_seeded(const RubatoTableSpec *spec, RubatoKey first_key, uint64_t n_keys,
                              uint64_t hash_seed, GError **error)
{
    const bool is_ragged = spec->shape == RUBATO_SHAPE_RAGGED;
    RubatoTableSpec of_rows = is_ragged ? ragged_row_spec(spec) : *spec;
    RubatoShard *shard = g_new0(RubatoShard, 1);

    if (!updater_init(&shard->updater, &of_rows)) {
        g_free(shard);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for a row of %u values", spec->name, spec_width(spec));
        return NULL;
    }
    shard->row_bytes = shard->updater.value_bytes;
    shard->stride = shard->updater.row_bytes + spec_stamp_bytes(&of_rows);
    shard->expiry = expiry_find(spec_expire_name(&of_rows));
    shard->spec = spec;
    shard->hash_seed = hash_seed;
    shard->alarm = &shard->own_alarm;
    shard->create_on_get = spec->create_on_get;
    shard->is_dense = rubato_table_spec_holds_range(spec);
    shard->first_key = first_key;
    shard->n_keys = n_keys;
    if (spec->max_bytes > 0 || shard->expiry != NULL)
        shard->bounded = storage_find_bounded(spec_storage_name(spec));
    shard->ops =
        shard->bounded != NULL ? &shard->bounded->base : storage_find(spec_storage_name(spec));
    init_prepare(&shard->init, &of_rows);
    init_add_state(&shard->init, shard->updater.ops, &shard->updater.update);

    const RubatoStorageSetup setup = {
        .spec = &of_rows,
        .first_key = first_key,
        .n_keys = n_keys,
        .row_bytes = shard->stride,
        .init = &shard->init,
        .hash_seed = hash_seed,
    };
    if (!shard_make_admission(shard, error)) {
        shard_free(shard);
        return NULL;
    }
    if (spec->max_bytes > 0) /* the admission's are among them */
        of_rows.max_bytes -= spec_admit_bytes(spec);
    shard->storage = shard->ops->create(&setup, error);
    if (shard->storage == NULL) {
        shard_free(shard);
        return NULL;
    }
    shard->storage->ops = shard->ops;
    if (shard->expiry != NULL) {
        shard->uses = shard->bounded->uses(shard->storage);
        init_add_stamp(&shard->init, spec_stamp_bytes(spec), &shard->uses->time);
        shard_set_score(shard);
    }
    shard->rows = shard->ops->run(shard->storage, first_key, (size_t)n_keys);
    shard->rows_stay = shard->ops->rows_stay != NULL && shard->ops->rows_stay(shard->storage);
    if (is_ragged)
        shard->ragged = ragged_heap_new(find_ragged, shard);
    return shard;
}

void shard_free(RubatoShard *shard)
{
    if (shard == NULL)
        return;
    shard_end_image(shard);
    shard_forget_changes(shard);
    shard_clear_role(shard);
    shard_end_ahead(shard);
    ragged_heap_free(shard->ragged);
    if (shard->storage != NULL)
        shard->ops->destroy(shard->storage);
    admission_free(shard->admission);
    g_free(shard->refused_rows);
    found_rows_clear(&shard->found);
    updater_clear(&shard->updater);
    g_free(shard);
}

void shard_set_alarm(RubatoShard *shard, bool *alarm)
{
    shard->alarm = alarm;
}

void shard_starve(RubatoShard *shard)
{
    *shard->alarm = true;
}

static void say_no_number(void *user, uint32_t worker)
{
    const RubatoShard *shard = user;

    shard->place.say_no_number(shard->place.server, shard->place.table, shard->spec->name, worker);
}

void shard_set_place(RubatoShard *shard, const ShardPlace *place)
{
    shard->place = *place;
    shard->updater.user = shard;
    shard->updater.say_no_number = place->say_no_number != NULL ? say_no_number : NULL;
}

/* Of a part with replicas it fails on each holder alike, and the alarm is for memory alone. */
void shard_complain(RubatoShard *shard, const char *text)
{
    if (shard->role == SHARD_ALONE)
        *shard->alarm = true;
    if (shard->place.complaint != NULL && *shard->place.complaint == NULL)
        *shard->place.complaint = g_strdup(text);
}

void shard_range(const RubatoShard *shard, RubatoKey *first_key, uint64_t *n_keys)
{
    *first_key = shard->first_key;
    *n_keys = shard->n_keys;
}

uint64_t shard_hash_seed(const RubatoShard *shard)
{
    return shard->hash_seed;
}

size_t shard_row_bytes(const RubatoShard *shard)
{
    return shard->row_bytes;
}

size_t shard_n_values(const RubatoShard *shard)
{
    return MAX(1, shard->row_bytes / sizeof(float));
}

const RubatoTableSpec *shard_spec(const RubatoShard *shard)
{
    return shard->spec;
}

void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes)
{
    shard->ops->size(shard->storage, n_rows, n_bytes);
    *n_bytes += shard_admission_bytes(shard) + found_rows_bytes(&shard->found);
    if (shard->ragged != NULL)
        *n_bytes += ragged_heap_all_bytes(shard->ragged);
}

uint64_t shard_n_rows(const RubatoShard *shard)
{
    uint64_t n_rows, n_bytes;

    shard_size(shard, &n_rows, &n_bytes);
    return n_rows;
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

    if (keys->at == NULL)
        return key_range_find_outside(keys->keys, keys->n, shard->first_key, shard->n_keys) ==
               keys->n;

    bool ok = true; /* no early exit: wrong keys are rare */
    for (size_t i = 0; i < keys->n; i++)
        ok &= keys->keys[keys->at[i]] - shard->first_key < shard->n_keys;
    return ok;
}

/* Gathers rows of `bytes` bytes that lie `stride` bytes apart; called with constants for the narrow
 * ones. Everything that the loop needs is in local variables, because a store of bytes might change
 * any member. */
static inline __attribute__((always_inline)) void gather(const RubatoShard *shard,
                                                         const RubatoKeys *keys,
                                                         unsigned char *restrict values,
                                                         size_t bytes, size_t stride)
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
            __builtin_prefetch(rows + (list[i + PREFETCH_AHEAD] - first_key) * stride);
            memcpy(values + i * bytes, rows + (list[i] - first_key) * stride, bytes);
        }
        for (; i < n; i++)
            memcpy(values + i * bytes, rows + (list[i] - first_key) * stride, bytes);
    } else {
        for (; i < n_ahead; i++) {
            __builtin_prefetch(rows + (list[at[i + PREFETCH_AHEAD]] - first_key) * stride);
            memcpy(values + at[i] * bytes, rows + (list[at[i]] - first_key) * stride, bytes);
        }
        for (; i < n; i++)
            memcpy(values + at[i] * bytes, rows + (list[at[i]] - first_key) * stride, bytes);
    }
}

static void get_dense_run(const RubatoShard *shard, const RubatoKeys *keys, unsigned char *values)
{
    const size_t bytes = shard->row_bytes, stride = shard->stride;
    const unsigned char *row;

    if (keys->n == 0)
        return;
    row = shard_dense_row(shard, keys->first);
    if (stride == bytes)
        memcpy(values, row, keys->n * bytes);
    else
        for (size_t i = 0; i < keys->n; i++)
            shard_copy_row(values + i * bytes, row + i * stride, bytes);
}

static void get_dense(const RubatoShard *shard, const RubatoKeys *keys, unsigned char *values)
{
    const size_t bytes = shard->row_bytes, stride = shard->stride;

    if (keys->keys == NULL)
        get_dense_run(shard, keys, values);
    else if (stride == 4)
        gather(shard, keys, values, 4, 4);
    else if (bytes == 4)
        gather(shard, keys, values, 4, stride);
    else if (stride == 8)
        gather(shard, keys, values, 8, 8);
    else
        gather(shard, keys, values, bytes, stride);
}

static inline __attribute__((always_inline)) void fetch_dense(const RubatoShard *shard,
                                                              const RubatoKeys *keys, size_t begin,
                                                              size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++) {
        rows[i] = shard_dense_row(shard, keys_get(keys, begin + i));
        __builtin_prefetch(rows[i], 1);
    }
}

static inline __attribute__((always_inline)) void add_fetched(RubatoShard *shard, uint32_t worker,
                                                              const RubatoKeys *keys, size_t begin,
                                                              size_t n, void *const *rows,
                                                              const unsigned char *deltas)
{
    if (keys->at == NULL)
        updater_apply_rows(&shard->updater, worker, rows, deltas + begin * shard->row_bytes, NULL,
                           n);
    else
        updater_apply_rows(&shard->updater, worker, rows, deltas, keys->at + begin, n);
}

/* Of many keys, the rows of the next block are on their way to the cache while those of this one
 * are changed. Few rows are in the cache already, and then this costs more than it brings. */
static __attribute__((noinline)) void add_many_dense(RubatoShard *shard, uint32_t worker,
                                                     const RubatoKeys *keys,
                                                     const unsigned char *deltas)
{
    void *blocks[2][ADD_BLOCK];
    unsigned turn = 0;

    fetch_dense(shard, keys, 0, ADD_BLOCK, blocks[0]);
    for (size_t begin = 0; begin < keys->n; begin += ADD_BLOCK, turn ^= 1) {
        const size_t n = MIN(keys->n - begin, ADD_BLOCK), next = begin + n;

        fetch_dense(shard, keys, next, MIN(keys->n - next, ADD_BLOCK), blocks[turn ^ 1]);
        add_fetched(shard, worker, keys, begin, n, blocks[turn], deltas);
    }
}

static void add_dense(RubatoShard *shard, uint32_t worker, const RubatoKeys *keys,
                      const unsigned char *deltas)
{
    void *rows[ADD_BLOCK];

    if (keys->keys == NULL) {
        if (keys->n > 0)
            updater_apply_run(&shard->updater, worker, shard_dense_row(shard, keys->first), deltas,
                              keys->n);
        return;
    }
    if (keys->n == 1) {
        rows[0] = shard_dense_row(shard, keys_get(keys, 0));
        updater_apply_rows(&shard->updater, worker, rows,
                           deltas + keys_row(keys, 0) * shard->row_bytes, NULL, 1);
        return;
    }
    if (keys->n >= MANY_KEYS) {
        add_many_dense(shard, worker, keys, deltas);
        return;
    }
    for (size_t begin = 0; begin < keys->n; begin += ADD_BLOCK) {
        const size_t n = MIN(keys->n - begin, ADD_BLOCK);

        fetch_dense(shard, keys, begin, n, rows);
        add_fetched(shard, worker, keys, begin, n, rows, deltas);
    }
}

/* Copies the rows that the storage has found for a block of keys. Called with a constant size for
 * narrow rows. Value i goes to row i of `values`, or to row at[i]. */
static inline __attribute__((always_inline)) void copy_found(
    const RubatoShard *shard, const RubatoKey *keys, void *const *restrict rows, size_t n,
    const uint32_t *restrict at, unsigned char *restrict values, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char *value = values + (at == NULL ? i : at[i]) * bytes;

        if (rows[i] != NULL)
            memcpy(value, rows[i], bytes);
        else
            init_values(&shard->init, keys[i], value);
    }
}

/* Of the keys, those without a row are about to get one. Returns how many these are. */
static size_t watch_absent(RubatoShard *shard, const RubatoKey *keys, size_t n, void *const *found)
{
    RubatoKey absent[BLOCK];
    size_t n_absent = 0;

    for (size_t i = 0; i < n; i++)
        if (found[i] == NULL)
            absent[n_absent++] = keys[i];
    if (n_absent > 0)
        shard_watch(shard, &(RubatoKeys){ .keys = absent, .n = n_absent });
    return n_absent;
}

/* The rows for a Get that creates absent ones. The others do not change. In bounded storage,
 * finding a row counts as a use of it, and a Get is one use, so first its mark is looked for. */
static bool find_to_read(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    if (G_UNLIKELY(shard->is_watched) && shard->bounded != NULL) {
        shard->bounded->find_marks(shard->storage, keys, n, rows);
        (void)watch_absent(shard, keys, n, rows);
    } else if (G_UNLIKELY(shard->is_watched)) {
        shard_find(shard, keys, n, rows);
        if (watch_absent(shard, keys, n, rows) == 0)
            return true;
    }
    return shard_find_or_create_watched(shard, keys, n, rows);
}

static void get_found(RubatoShard *shard, const RubatoKeys *keys, unsigned char *values)
{
    const uint32_t *at = keys->keys == NULL ? NULL : keys->at;
    const size_t row_bytes = shard->row_bytes;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    if (shard->rows_stay)
        found_rows_begin(&shard->found, keys->n);
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);
        unsigned char *to = at == NULL ? values + begin * row_bytes : values;
        const uint32_t *some_at = at == NULL ? NULL : at + begin;

        if (shard->create_on_get && shard->role == SHARD_ALONE)
            (void)find_to_read(shard, some, n, rows); /* an absent row reads as if it were there */
        else
            shard_find(shard, some, n, rows);
        if (shard->wanted != NULL)
            shard_note_wanted(shard, some, n, rows);
        if (shard->rows_stay)
            found_rows_put(&shard->found, some, n, rows);
        if (row_bytes == 4)
            copy_found(shard, some, rows, n, some_at, to, 4);
        else if (row_bytes == 8)
            copy_found(shard, some, rows, n, some_at, to, 8);
        else
            copy_found(shard, some, rows, n, some_at, to, row_bytes);
    }
}

/* Whether an Add of so many keys looks among the rows that Gets found. If an image is being read,
 * rows are saved before they change; they are searched for then. */
static bool uses_found(const RubatoShard *shard, size_t n)
{
    return shard->rows_stay && n >= FOUND_ROWS_LEAST / 2 && shard->image == NULL &&
           shard->admission == NULL;
}

/* As shard_find_to_add, for rows that stay. */
static bool take_found(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    RubatoKey absent[BLOCK];
    void *made[BLOCK];
    size_t n_absent = 0;

    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, &(RubatoKeys){ .keys = keys, .n = n });
    if (found_rows_take(&shard->found, keys, n, rows, shard->stride) == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        if (rows[i] == NULL)
            absent[n_absent++] = keys[i];
    if (!shard_find_or_create_watched(shard, absent, n_absent, made))
        return false;
    for (size_t i = n; i-- > 0;)
        if (rows[i] == NULL)
            rows[i] = made[--n_absent];
    return true;
}

static void add_found(RubatoShard *shard, uint32_t worker, const RubatoKeys *keys,
                      const unsigned char *deltas)
{
    const bool is_selection = keys->keys != NULL && keys->at != NULL;
    const bool looks = uses_found(shard, keys->n);
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        if (!(looks ? take_found : shard_find_to_add)(shard, some, n, rows))
            return;
        if (is_selection)
            updater_apply_rows(&shard->updater, worker, rows, deltas, keys->at + begin, n);
        else
            updater_apply_rows(&shard->updater, worker, rows, deltas + begin * shard->row_bytes,
                               NULL, n);
    }
}

const void *shard_find_run(const RubatoShard *shard, const RubatoKeys *keys)
{
    if (shard->rows == NULL || keys->keys != NULL || keys->n == 0 ||
        shard->stride != shard->row_bytes)
        return NULL;
    return shard_dense_row(shard, keys->first);
}

void *shard_memory(const RubatoShard *shard, size_t *stride)
{
    *stride = shard->stride;
    return shard->rows;
}

void shard_get(RubatoShard *shard, const RubatoKeys *keys, void *values)
{
    if (shard->rows != NULL)
        get_dense(shard, keys, values);
    else
        get_found(shard, keys, values);
}

void shard_add_by(RubatoShard *shard, uint32_t worker, const RubatoKeys *keys, const void *deltas)
{
    if (shard->rows != NULL) {
        if (G_UNLIKELY(shard->is_watched))
            shard_watch(shard, keys);
        add_dense(shard, worker, keys, deltas);
    } else {
        add_found(shard, worker, keys, deltas);
    }
}

void shard_add(RubatoShard *shard, const RubatoKeys *keys, const void *deltas)
{
    shard_add_by(shard, BAD_GRADIENTS_NO_WORKER, keys, deltas);
}

/* ---- sums of a clock ---- */

bool shard_accepts(RubatoShard *shard, uint32_t worker, const void *deltas)
{
    return updater_accepts(&shard->updater, worker, deltas);
}

bool shard_accepts_all(const RubatoShard *shard, const void *deltas, size_t n)
{
    return updater_accepts_all(&shard->updater, deltas, n);
}

void shard_add_accepted(RubatoShard *shard, const RubatoKey *keys, size_t n, const void *deltas)
{
    const bool looks = uses_found(shard, n);
    const unsigned char *from = deltas;
    void *rows[BLOCK];

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(n - begin, BLOCK);

        if (!(looks ? take_found : shard_find_to_add)(shard, keys + begin, some, rows))
            return;
        updater_apply_accepted(&shard->updater, rows, from + begin * shard->row_bytes, some);
    }
}

/* Applies the rule to the rows of a block that are not left out; `rows` has these alone. */
static void apply_unmarked(RubatoShard *shard, void *const *rows, const unsigned char *deltas,
                           const uint8_t *marks, size_t n)
{
    size_t n_applied = 0;

    for (size_t begin = 0, end; begin < n; begin = end + 1) {
        const uint8_t *const next = memchr(marks + begin, SHARD_LEFT_OUT, n - begin);

        end = next == NULL ? n : (size_t)(next - marks);
        if (end > begin)
            updater_apply_accepted(&shard->updater, rows + n_applied,
                                   deltas + begin * shard->row_bytes, end - begin);
        n_applied += end - begin;
    }
}

void shard_add_unmarked(RubatoShard *shard, const RubatoKeys *keys, const void *deltas,
                        const uint8_t *marks)
{
    static const uint8_t none[BLOCK];
    const bool looks = uses_found(shard, keys->n);
    const unsigned char *from = deltas;
    RubatoKey some[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const uint8_t *const block_marks = marks == NULL ? none : marks + begin;
        size_t n_some = 0;

        for (size_t i = 0; i < n; i++) {
            some[n_some] = keys_get(keys, begin + i);
            n_some += block_marks[i] != SHARD_LEFT_OUT;
        }
        if (!(looks ? take_found : shard_find_to_add)(shard, some, n_some, rows))
            return;
        apply_unmarked(shard, rows, from + begin * shard->row_bytes, block_marks, n);
    }
}
