/* Several dense shards in one pass: see joint_shards.h.
 *
 * A row is at its key's offset from an origin, which the shard decides. The origin is summed up by
 * masks: a branch could not be predicted, because keys come in any order.
 *
 * Thread: the present owner of all shards. Keys have been checked. */
#include "models/shard/joint_shards.h"

#include "models/shard/shard_private.h"

#define BLOCK_KEYS 32u /* whose rows are fetched together, as in shard.c */

/* The shards as a pass over keys needs them. */
typedef struct {
    size_t stride;
    RubatoKey first_key;                /* of the first shard */
    uintptr_t origin;                   /* where its rows are */
    uint64_t bounds[JOINT_SHARDS_MOST]; /* first keys less that of the first shard */
    /* From where the row of first_key would be, by the rows of the shard before, to where it would
     * be by this one's: numbers, because no memory of theirs need be there. */
    uintptr_t steps[JOINT_SHARDS_MOST];
} Pass;

/* Sets no more than is needed: clearing all of it takes as long as some keys. */
static inline void begin_pass(Pass *pass, RubatoShard *const *shards, size_t n_shards)
{
    uintptr_t before = (uintptr_t)shards[0]->rows;

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

/* Called with a constant count for two. */
static inline __attribute__((always_inline)) unsigned char *row_of(const Pass *pass, size_t n,
                                                                   RubatoKey key, size_t stride)
{
    const uint64_t offset = key - pass->first_key;
    uintptr_t origin = pass->origin;

    for (size_t i = 1; i < n; i++)
        origin += pass->steps[i] & -(uintptr_t)(offset >= pass->bounds[i]);
    return (unsigned char *)(origin + offset * stride);
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
static inline __attribute__((always_inline)) void gather(const Pass *pass, size_t n_shards,
                                                         const RubatoKey *restrict keys, size_t n,
                                                         unsigned char *restrict values,
                                                         size_t bytes, size_t stride)
{
    for (size_t i = 0; i < n; i++)
        memcpy(values + i * bytes, row_of(pass, n_shards, keys[i], stride), bytes);
}

/* The same, but where all rows of a block are comes first, and they are asked for then. Between a
 * row's address and the next one's the masks take longer than without parts, so that fewer rows
 * would be on their way at a time. */
static inline __attribute__((always_inline)) void gather_blocks(const Pass *pass, size_t n_shards,
                                                                const RubatoKey *restrict keys,
                                                                size_t n,
                                                                unsigned char *restrict values,
                                                                size_t bytes, size_t stride)
{
    const unsigned char *rows[BLOCK_KEYS];

    for (size_t begin = 0; begin < n; begin += BLOCK_KEYS) {
        const size_t some = MIN(n - begin, BLOCK_KEYS);

        for (size_t i = 0; i < some; i++) {
            rows[i] = row_of(pass, n_shards, keys[begin + i], stride);
            __builtin_prefetch(rows[i]);
        }
        for (size_t i = 0; i < some; i++)
            memcpy(values + (begin + i) * bytes, rows[i], bytes);
    }
}

/* Of how many shards, and how wide the rows are: constant for the usual ones. */
#define GATHER(loop)                                                    \
    do {                                                                \
        if (n_shards == 2 && pass.stride == 4)                          \
            loop(&pass, 2, keys, n, values, 4, 4);                      \
        else if (n_shards == 2 && bytes == 4)                           \
            loop(&pass, 2, keys, n, values, 4, pass.stride);            \
        else if (n_shards == 2 && pass.stride == 8)                     \
            loop(&pass, 2, keys, n, values, 8, 8);                      \
        else if (n_shards == 2)                                         \
            loop(&pass, 2, keys, n, values, bytes, pass.stride);        \
        else                                                            \
            loop(&pass, n_shards, keys, n, values, bytes, pass.stride); \
    } while (0)

void joint_shards_get(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys, size_t n,
                      void *values)
{
    const size_t bytes = shards[0]->row_bytes;
    Pass pass;

    begin_pass(&pass, shards, n_shards);
    GATHER(gather);
}

void joint_shards_get_far(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys,
                          size_t n, void *values)
{
    const size_t bytes = shards[0]->row_bytes;
    Pass pass;

    begin_pass(&pass, shards, n_shards);
    GATHER(gather_blocks);
}

static inline __attribute__((always_inline)) void find_to_write(const Pass *pass, size_t n_shards,
                                                                const RubatoKey *restrict keys,
                                                                size_t n, void **restrict rows)
{
    for (size_t i = 0; i < n; i++) {
        rows[i] = row_of(pass, n_shards, keys[i], pass->stride);
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
    Pass pass;

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
