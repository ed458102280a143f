/* Shards of tables whose rows expire.
 *
 * Each row has a stamp behind its state: the time of its last write. Whether it has expired follows
 * from its values, its stamp and the table's time, and is asked whenever the row is found. So a
 * request sees a row that has expired as absent, whether or not a sweep has removed it. Time comes
 * from outside. If it is counted in clocks, all that a request sees follows from the inputs of the
 * shard: a replica answers as its primary does, though both sweep when they like.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/storage/eviction/eviction.h"

/* The largest time: stamps have 32 bits. */
#define LAST_TIME ((uint64_t)UINT32_MAX)

/* A sweep begins when this share of expire_after has passed since the last one. */
#define SWEEPS_AN_AGE 8u

static unsigned char *stamp_of(const RubatoShard *shard, const void *row)
{
    return (unsigned char *)(uintptr_t)row + shard->init.row_bytes;
}

static uint32_t age_of(const RubatoShard *shard, const void *row)
{
    uint32_t stamp;

    memcpy(&stamp, stamp_of(shard, row), sizeof stamp);
    return stamp < shard->uses->time ? (uint32_t)(shard->uses->time - stamp) : 0;
}

static bool has_expired(const RubatoShard *shard, RubatoKey key, const void *row)
{
    return shard->expiry->expires(shard->spec, key, row, age_of(shard, row));
}

static double score_of(const void *user, const void *row)
{
    const RubatoShard *shard = user;

    return shard->expiry->score(shard->spec, row, age_of(shard, row));
}

void shard_set_score(RubatoShard *shard)
{
    if (eviction_find(spec_evict_name(shard->spec))->choose == NULL)
        shard->bounded->set_score(shard->storage, score_of, shard);
}

void shard_hide_expired(const RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i] != NULL && has_expired(shard, keys[i], rows[i]))
            rows[i] = NULL;
}

void shard_copy_stamp(const RubatoShard *shard, const void *from, void *to)
{
    memcpy(stamp_of(shard, to), stamp_of(shard, from), sizeof(uint32_t));
}

void shard_stamp(RubatoShard *shard, void *const *rows, size_t n)
{
    const uint32_t now = (uint32_t)shard->uses->time;

    for (size_t i = 0; i < n; i++) {
        const uint32_t age = rows[i] == NULL ? 0 : age_of(shard, rows[i]);

        if (age == 0)
            continue;
        if (shard->expiry->refresh != NULL)
            shard->expiry->refresh(shard->spec, rows[i], age);
        memcpy(stamp_of(shard, rows[i]), &now, sizeof now);
    }
}

void shard_reach_stamps(RubatoShard *shard, void *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t stamp;

        if (rows[i] == NULL)
            continue;
        memcpy(&stamp, stamp_of(shard, rows[i]), sizeof stamp);
        shard_reach_time(shard, stamp);
    }
}

static void erase_expired(RubatoShard *shard, const RubatoKey *keys, size_t n, void *const *rows)
{
    RubatoKey expired[BLOCK];
    size_t n_expired = 0;

    for (size_t i = 0; i < n; i++)
        if (rows[i] != NULL && has_expired(shard, keys[i], rows[i]))
            expired[n_expired++] = keys[i];
    if (n_expired > 0)
        shard->uses->n_expired += shard->bounded->erase(shard->storage, expired, n_expired);
}

bool shard_find_to_write(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                         size_t n, void **rows)
{
    bool all;

    shard->ops->find(shard->storage, keys, n, rows);
    erase_expired(shard, keys, n, rows);
    all = admission == NULL ? shard->ops->find_or_create(shard->storage, keys, n, rows)
                            : shard->ops->find_or_admit(shard->storage, admission, keys, n, rows);
    if (!all) {
        shard_starve(shard);
        return false;
    }
    shard_stamp(shard, rows, n);
    return true;
}

/* ---- time ---- */

bool shard_counts(const RubatoShard *shard, RubatoTimeUnit unit)
{
    return shard->expiry != NULL && shard->expiry->unit == unit;
}

void shard_pass_time(RubatoShard *shard, uint64_t n)
{
    shard->uses->time += MIN(n, LAST_TIME - shard->uses->time);
}

void shard_reach_time(RubatoShard *shard, uint64_t time)
{
    shard->uses->time = CLAMP(time, shard->uses->time, LAST_TIME);
}

/* ---- sweeps ---- */

static bool is_to_go(void *user, RubatoKey key, const void *row)
{
    RubatoShard *const shard = user;

    if (!has_expired(shard, key, row))
        return false;
    shard_note(shard, &(RubatoKeys){ .first = key, .n = 1 });
    return true;
}

void shard_hold_sweeps(RubatoShard *shard)
{
    shard->holds_sweeps = true;
}

void shard_release_sweeps(RubatoShard *shard)
{
    shard->holds_sweeps = false;
}

/* A shard of which rows expire has no image. Between tasks its rows are listed in slices, and a
 * sweep would change their order: it is held meanwhile. So it is while rows are sent ahead of a
 * move: what was sent of a row has to be there until what it has become is sent. */
bool shard_sweep(RubatoShard *shard, uint32_t *n_looks)
{
    const uint64_t pause = MAX(1, shard->spec->expire_after / SWEEPS_AN_AGE);

    assert(shard->image == NULL);
    if (shard->holds_sweeps || shard->ahead != NULL) {
        *n_looks = 0;
        return false;
    }
    if (!shard->is_sweeping) {
        if (shard->uses->time - shard->swept_at < pause) {
            *n_looks = 0;
            return false;
        }
        shard->swept_at = shard->uses->time;
    }
    shard->is_sweeping = shard->bounded->sweep(shard->storage, &shard->swept, n_looks, is_to_go,
                                               shard, &shard->uses->n_expired);
    return shard->is_sweeping;
}
