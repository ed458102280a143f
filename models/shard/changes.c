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

/* What is noted for one of those that ask. */
typedef struct {
    ChangesSince before; /* up to the last cut */
    ChangesSince now;    /* since then */
    uint64_t n_rows;     /* at the last cut */
} ChangesNoted;

struct ShardChanges {
    ChangesNoted noted[CHANGES_FOR_N];
    uint64_t hash_seed; /* of the sets, if there is no range */
};

static void clear_since(ChangesSince *since)
{
    key_cover_clear(&since->keys);
    since->keys.n_bits = 0;
    since->snapshot = 0;
}

static void note_evicted(void *user, RubatoKey key)
{
    RubatoShard *const shard = user;

    shard_note(shard, &(RubatoKeys){ .first = key, .n = 1 });
    if (shard->ahead != NULL)
        shard_note_ahead(shard, &(RubatoKeys){ .first = key, .n = 1 });
    if (shard_tells_evictions(shard))
        shard_note_eviction(shard, key);
}

void shard_hear_evictions(RubatoShard *shard)
{
    const bool hears =
        shard->changes != NULL || shard->ahead != NULL || shard_tells_evictions(shard);

    if (shard->bounded != NULL)
        shard->bounded->set_evicted(shard->storage, hears ? note_evicted : NULL, shard);
}

static void forget(RubatoShard *shard, ChangesFor whom)
{
    bool is_noted = false;

    clear_since(&shard->changes->noted[whom].before);
    clear_since(&shard->changes->noted[whom].now);
    for (size_t i = 0; i < CHANGES_FOR_N; i++)
        is_noted |= shard->changes->noted[i].now.snapshot != 0;
    if (is_noted)
        return;
    g_clear_pointer(&shard->changes, g_free);
    shard_hear_evictions(shard);
    shard_set_watched(shard);
}

void shard_forget_changes(RubatoShard *shard)
{
    for (size_t i = 0; i < CHANGES_FOR_N && shard->changes != NULL; i++)
        forget(shard, (ChangesFor)i);
}

/* Makes `before` the set of the keys that changed since the base, or an empty one. */
static void settle(ChangesNoted *changes, uint64_t base)
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
static uint64_t choose_bits(const RubatoShard *shard, const ChangesNoted *noted)
{
    const uint64_t n_bits = MAX(LEAST_BITS, ROW_BITS * noted->n_rows);
    const uint64_t n_before = noted->before.keys.n_bits;

    if (shard->is_dense)
        return shard->n_keys;
    return n_before >= n_bits / 2 && n_before <= 2 * n_bits ? n_before : n_bits;
}

static bool begin_since(const RubatoShard *shard, ChangesNoted *noted, uint64_t snapshot)
{
    ShardChanges *const changes = shard->changes;

    /* Another seed than that of the storage, which nobody may know. */
    if (changes->hash_seed == 0)
        changes->hash_seed = rubato_mix64(snapshot);
    if (!key_cover_init(&noted->now.keys, shard->is_dense,
                        shard->is_dense ? shard->first_key : changes->hash_seed,
                        choose_bits(shard, noted)))
        return false;
    noted->now.snapshot = snapshot;
    return true;
}

void shard_cut_changes(RubatoShard *shard, ChangesFor whom, uint64_t base, uint64_t snapshot)
{
    ChangesNoted *noted;

    if (shard->changes == NULL)
        shard->changes = g_new0(ShardChanges, 1);
    noted = &shard->changes->noted[whom];
    settle(noted, base);
    noted->n_rows = shard->is_dense ? shard->n_keys : shard_n_rows(shard);
    if (!begin_since(shard, noted, snapshot)) {
        forget(shard, whom);
        return;
    }
    shard_hear_evictions(shard);
    shard_set_watched(shard);
}

const KeyCover *shard_changes(const RubatoShard *shard, ChangesFor whom, uint64_t *n_rows)
{
    const ChangesNoted *const noted = shard->changes != NULL ? &shard->changes->noted[whom] : NULL;

    if (noted == NULL || noted->before.snapshot == 0)
        return NULL;
    *n_rows = noted->n_rows;
    return &noted->before.keys;
}

typedef struct {
    RubatoShard *shard;
    KeyCover *keys;
} Expired;

static bool cover_expired(void *user, RubatoKey key, const void *row)
{
    const Expired *const expired = user;
    void *found = (void *)(uintptr_t)row;

    shard_hide_expired(expired->shard, &key, 1, &found);
    if (found == NULL)
        key_cover_add_keys(expired->keys, &(RubatoKeys){ .first = key, .n = 1 });
    return false;
}

bool shard_cover_expired(RubatoShard *shard, ChangesFor whom, StorageCursor *at, uint32_t *n_looks)
{
    uint64_t n_removed = 0;

    if (shard->expiry == NULL)
        return false;

    Expired expired = { shard, &shard->changes->noted[whom].before.keys };

    return shard->bounded->sweep(shard->storage, at, n_looks, cover_expired, &expired, &n_removed);
}

void shard_note(RubatoShard *shard, const RubatoKeys *keys)
{
    for (size_t i = 0; i < CHANGES_FOR_N && shard->changes != NULL; i++)
        if (shard->changes->noted[i].now.snapshot != 0)
            key_cover_add_keys(&shard->changes->noted[i].now.keys, keys);
}

void shard_set_watched(RubatoShard *shard)
{
    shard->is_watched = shard->image != NULL || shard->changes != NULL || shard->ahead != NULL;
}

void shard_watch(RubatoShard *shard, const RubatoKeys *keys)
{
    shard_note(shard, keys);
    if (shard->ahead != NULL)
        shard_note_ahead(shard, keys);
    if (shard->image != NULL)
        shard_save(shard, keys);
}
