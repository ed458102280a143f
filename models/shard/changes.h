/* Which rows of a shard have changed since a snapshot, so that the next one holds these alone.
 *
 * Snapshots and the versions of a stream, which are snapshots too, build on their own kind: what
 * changed is noted for each kind by itself, from its first cut on.
 *
 * A snapshot has a number that is drawn for it: its seed. At its cut, a new set of keys begins. The
 * set before stays until the next cut, which says whether the snapshot was made: the next one then
 * builds on it. If it failed, the next one builds on the one before, and has the keys of both sets.
 *
 * Threads: the shard's present owner; what shard_changes returned may be read by others until the
 * next cut. */
#ifndef RUBATO_MODELS_SHARD_CHANGES_H
#define RUBATO_MODELS_SHARD_CHANGES_H

#include "io/store/key_cover.h"
#include "models/shard/shard.h"

/* For whom changes are noted. */
typedef enum {
    CHANGES_FOR_SNAPSHOTS,
    CHANGES_FOR_STREAM,
    CHANGES_FOR_N,
} ChangesFor;

/* The cut of the snapshot with that seed, which builds on that of `base`; 0: on none. From now on
 * the shard notes which rows change, until shard_forget_changes: a later snapshot may build on this
 * one, whenever it comes. Without memory it notes nothing of this kind, and the next snapshot has
 * all rows. */
void shard_cut_changes(RubatoShard *shard, ChangesFor whom, uint64_t base, uint64_t snapshot);

/* What changed between the base and the last cut; NULL: it is not known, so all may have. n_rows is
 * set to how many rows there were at the cut. */
const KeyCover *shard_changes(const RubatoShard *shard, ChangesFor whom, uint64_t *n_rows);

/* Of a table whose rows expire, after shard_changes has returned keys: adds those of rows that have
 * expired, and that no sweep has removed. Nobody has noted that they expired, and the base has the
 * values and the state that they had before. So the snapshot has them as well, as new rows. Looks
 * at up to *n_looks rows from *at on, as a sweep does, and removes none. False: there are no
 * more. */
bool shard_cover_expired(RubatoShard *shard, ChangesFor whom, StorageCursor *at, uint32_t *n_looks);

/* The shard notes nothing any more, for nobody. */
void shard_forget_changes(RubatoShard *shard);

#endif
