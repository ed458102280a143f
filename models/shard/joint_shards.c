/* Several dense shards in one pass: see joint_shards.h.
 *
 * Thread: the present owner of all shards. Keys have been checked. */
#include "models/shard/joint_shards.h"

#include <assert.h>

#include "models/shard/shard_private.h"

static_assert(JOINT_SHARDS_MOST == ROW_PLACES_MOST, "a pass has room for all shards");

#define BLOCK_KEYS 32u /* whose rows are fetched together, as in shard.c */

/* Sets no more than is needed: clearing all of it takes as long as some keys. */
static inline __attribute__((always_inline)) void begin_pass(RowPlaces *pass,
                                                             RubatoShard *const *shards,
                                                             size_t n_shards)
{
    uintptr_t before = (uintptr_t)shards[0]->rows;

    pass->n = n_shards;
    pass->stride = shards[0]->stride;
    pass->first_key = shards[0]->first_key;
    pass->origin = before;
    for (size_t i = 1; i < n_shards; i++) {
        const uint64_t bound = shards[i]->first_key - pass->first_key;
        const uintptr_t origin = (uintptr_t)shards[i]->rows - bound * pass->stride;

        pass->bounds[i] = bound;
        pass->steps[i] = origin - before;
        before = origin;
    }
}

void joint_shards_find(RubatoShard *const *shards, size_t n_shards, RowPlaces *places)
{
    begin_pass(places, shards, n_shards);
}

bool joint_shards_can_get(RubatoShard *const *shards, size_t n_shards)
{
    for (size_t i = 0; i < n_shards; i++)
        if (shards[i]->rows == NULL || shards[i]->n_keys == 0)
            return false;
    return true;
}

bool joint_shards_can_add(RubatoShard *const *shards, size_t n_shards)
{
    for (size_t i = 0; i < n_shards; i++)
        if (shards[i]->is_watched || !shards[i]->updater.is_plain)
            return false;
    return joint_shards_can_get(shards, n_shards);
}

/* Called with constant sizes for the narrow rows. */
static inline __attribute__((always_inline)) void gather(const RowPlaces *pass, size_t n_shards,
                                                         const RubatoKey *restrict keys, size_t n,
                                                         unsigned char *restrict values,
                                                         size_t bytes, size_t stride)
{
    for (size_t i = 0; i < n; i++)
        memcpy(values + i * bytes, row_place(pass, n_shards, keys[i], stride), bytes);
}

/* Of how many shards, and how wide the rows are: constant for the usual ones. */
void joint_shards_get(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys, size_t n,
                      void *values)
{
    const size_t bytes = shards[0]->row_bytes, stride = shards[0]->stride;
    RowPlaces pass;

    begin_pass(&pass, shards, n_shards);
    if (n_shards == 2 && stride == 4)
        gather(&pass, 2, keys, n, values, 4, 4);
    else if (n_shards == 2 && bytes == 4)
        gather(&pass, 2, keys, n, values, 4, stride);
    else if (n_shards == 2 && stride == 8)
        gather(&pass, 2, keys, n, values, 8, 8);
    else if (n_shards == 2)
        gather(&pass, 2, keys, n, values, bytes, stride);
    else
        gather(&pass, n_shards, keys, n, values, bytes, stride);
}

bool joint_shards_can_read_beside(RubatoShard *const *shards, size_t n_shards)
{
    const size_t bytes = shards[0]->row_bytes;

    return (bytes == 4 || bytes == 8) && shards[0]->stride == bytes &&
           joint_shards_can_get(shards, n_shards);
}

/* Where all rows of a block are comes first, and they are asked for then: others change them, so
 * they may lie in another processor's cache, and between a row's address and the next one's the
 * masks take so long that fewer would be on their way at a time. relaxed: the gate, the mailbox and
 * the clocks order what has to be seen. Rows are plain memory to all others, so it is a builtin. */
#define DEFINE_READ(type)                                                                   \
    static inline __attribute__((always_inline)) void read_##type(                          \
        const RowPlaces *pass, size_t n_shards, const RubatoKey *restrict keys, size_t n,   \
        type *restrict values)                                                              \
    {                                                                                       \
        const unsigned char *rows[BLOCK_KEYS];                                              \
                                                                                            \
        for (size_t begin = 0; begin < n; begin += BLOCK_KEYS) {                            \
            const size_t some = MIN(n - begin, BLOCK_KEYS);                                 \
                                                                                            \
            for (size_t i = 0; i < some; i++) {                                             \
                rows[i] = row_place(pass, n_shards, keys[begin + i], sizeof(type));         \
                __builtin_prefetch(rows[i]);                                                \
            }                                                                               \
            for (size_t i = 0; i < some; i++)                                               \
                values[begin + i] =                                                         \
                    __atomic_load_n((const type *)(const void *)rows[i], __ATOMIC_RELAXED); \
        }                                                                                   \
    }

DEFINE_READ(uint32_t)
DEFINE_READ(uint64_t)

void joint_shards_read_beside(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys,
                              size_t n, void *values)
{
    RowPlaces pass;

    begin_pass(&pass, shards, n_shards);
    if (pass.stride == 4 && n_shards == 1)
        read_uint32_t(&pass, 1, keys, n, values);
    else if (pass.stride == 4 && n_shards == 2)
        read_uint32_t(&pass, 2, keys, n, values);
    else if (pass.stride == 4)
        read_uint32_t(&pass, n_shards, keys, n, values);
    else if (n_shards == 1)
        read_uint64_t(&pass, 1, keys, n, values);
    else
        read_uint64_t(&pass, n_shards, keys, n, values);
}

static inline __attribute__((always_inline)) void find_to_write(const RowPlaces *pass,
                                                                size_t n_shards,
                                                                const RubatoKey *restrict keys,
                                                                size_t n, void **restrict rows)
{
    for (size_t i = 0; i < n; i++) {
        rows[i] = row_place(pass, n_shards, keys[i], pass->stride);
        __builtin_prefetch(rows[i], 1);
    }
}

/* Where the rule is plain, all that an updater does depends on the row alone: so one of them adds
 * to the rows of all shards. */
void joint_shards_add(RubatoShard *const *shards, size_t n_shards, uint32_t worker,
                      const RubatoKey *keys, size_t n, const void *deltas)
{
    const size_t row_bytes = shards[0]->row_bytes;
    const unsigned char *from = deltas;
    void *rows[BLOCK_KEYS];
    RowPlaces pass;

    begin_pass(&pass, shards, n_shards);
    for (size_t begin = 0; begin < n; begin += BLOCK_KEYS) {
        const size_t some = MIN(n - begin, BLOCK_KEYS);

        if (n_shards == 2)
            find_to_write(&pass, 2, keys + begin, some, rows);
        else
            find_to_write(&pass, n_shards, keys + begin, some, rows);
        updater_apply_rows(&shards[0]->updater, worker, rows, from + begin * row_bytes, NULL, some);
    }
}
