/* Rows that have changed since a snapshot.
 *
 * Each way by which a shard changes a row, or forgets one, calls shard_watch before. That sets a
 * bit (io/store/key_cover.h).
 *
 * Thread: the shard's present owner. */
#include "models/shard/changes.h"

#include "models/shard/shard_private.h"

/* Of storage without a range: bits for each row. With 3, a set of 10 % of the keys covers 13 %.
 * More would cover fewer rows and be longer itself: 3 is best for the shortest rows. */
#define ROW_BITS 3u
#define LEAST_BITS UINT64_C(32768)

typedef struct {
    uint64_t snapshot; /* the keys are those that changed since; 0: there is no set */
    KeyCover keys;
} ChangesSince;

struct ShardChanges {
    ChangesSince before; /* up to the last cut */
    ChangesSince now;    /* since then */
    uint64_t n_rows;     /* at the last cut */
    uint64_t hash_seed;  /* of the sets, if there is no range */
};

static void clear_since(ChangesSince *since)
{
    key_cover_clear(&since->keys);
    since->keys.n_bits = 0;
    since->snapshot = 0;
}

static void note_evicted(void *shard, RubatoKey key)
{
    shard_note(shard, &(RubatoKeys){ .first = key, .n = 1 });
}

void shard_forget_changes(RubatoShard *shard)
{
    if (shard->changes == NULL)
        return;
    if (shard->bounded != NULL)
        shard->bounded->set_evicted(shard->storage, NULL, NULL);
    clear_since(&shard->changes->before);
    clear_since(&shard->changes->now);
    g_clear_pointer(&shard->changes, g_free);
    shard_set_watched(shard);
}

/* Makes `before` the set of the keys that changed since the base, or an empty one. */
static void settle(ShardChanges *changes, uint64_t base)
{
    ChangesSince *const before = &changes->before, *const now = &changes->now;

    if (base != 0 && now->snapshot == base) { /* it was made */
        clear_since(before);
        *before = *now;
        *now = (ChangesSince){ .snapshot = 0 };
        return;
    }
    if (base == 0 || before->snapshot != base || !key_cover_merge(&before->keys, &now->keys))
        clear_since(before);
    clear_since(now);
}

/* About as many bits as before stay as many, so that the two sets can be merged. */
static uint64_t choose_bits(const RubatoShard *shard, uint64_t n_before)
{
    const uint64_t n_bits = MAX(LEAST_BITS, ROW_BITS * shard->changes->n_rows);

    if (shard->is_dense)
        return shard->n_keys;
    return n_before >= n_bits / 2 && n_before <= 2 * n_bits ? n_before : n_bits;
}

static bool begin_since(const RubatoShard *shard, ChangesSince *since, uint64_t snapshot)
{
    ShardChanges *const changes = shard->changes;

    /* Another seed than that of the storage, which nobody may know. */
    if (changes->hash_seed == 0)
        changes->hash_seed = rubato_mix64(snapshot);
    if (!key_cover_init(&since->keys, shard->is_dense,
                        shard->is_dense ? shard->first_key : changes->hash_seed,
                        choose_bits(shard, changes->before.keys.n_bits)))
        return false;
    since->snapshot = snapshot;
    return true;
}

void shard_cut_changes(RubatoShard *shard, uint64_t base, uint64_t snapshot)
{
    ShardChanges *changes = shard->changes;

    if (changes == NULL)
        changes = shard->changes = g_new0(ShardChanges, 1);
    settle(changes, base);
    changes->n_rows = shard->is_dense ? shard->n_keys : shard_n_rows(shard);
    if (!begin_since(shard, &changes->now, snapshot)) {
        shard_forget_changes(shard);
        return;
    }
    if (shard->bounded != NULL)
        shard->bounded->set_evicted(shard->storage, note_evicted, shard);
    shard_set_watched(shard);
}

const KeyCover *shard_changes(const RubatoShard *shard, uint64_t *n_rows)
{
    const ShardChanges *const changes = shard->changes;

    if (changes == NULL || changes->before.snapshot == 0)
        return NULL;
    *n_rows = changes->n_rows;
    return &changes->before.keys;
}

static bool cover_expired(void *user, RubatoKey key, const void *row)
{
    const RubatoShard *const shard = user;
    void *found = (void *)(uintptr_t)row;

    shard_hide_expired(shard, &key, 1, &found);
    if (found == NULL)
        key_cover_add_keys(&shard->changes->before.keys, &(RubatoKeys){ .first = key, .n = 1 });
    return false;
}

bool shard_cover_expired(RubatoShard *shard, StorageCursor *at, uint32_t *n_looks)
{
    uint64_t n_removed = 0;

    if (shard->expiry == NULL)
        return false;
    return shard->bounded->sweep(shard->storage, at, n_looks, cover_expired, shard, &n_removed);
}

void shard_note(RubatoShard *shard, const RubatoKeys *keys)
{
    if (shard->changes != NULL)
        key_cover_add_keys(&shard->changes->now.keys, keys);
}

void shard_set_watched(RubatoShard *shard)
{
    shard->is_watched = shard->image != NULL || shard->changes != NULL;
}

void shard_watch(RubatoShard *shard, const RubatoKeys *keys)
{
    shard_note(shard, keys);
    if (shard->image != NULL)
        shard_save(shard, keys);
}
