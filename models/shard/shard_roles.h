/* A part with replicas: what its shard decides by itself, so that the shards of replicas do the
 * same (docs/replication.md). The rest of what a shard does follows from its inputs.
 *
 * Evictions. Which row leaves a table with max_bytes depends on where rows lie, on memory, and on
 * which expired ones a sweep has removed; so it may differ between the primary and a replica. The
 * shard of a primary keeps a list of the rows that an input evicted; those of replicas get it
 * before the input. They evict none by themselves, and make room beyond the bound if they must.
 *
 * A row is evicted when another one is made. So the list says for which of the rows that the input
 * makes, and a replica removes the row when it makes the same one: an input may make a row, evict
 * it, and make it again.
 *
 * A replica that does not have all rows yet. It gets the rows of its primary in slices, and inputs
 * between them (engine/server/replicas/server_copies.c). In a table that evicts rows, whose rows
 * expire, or that does not admit all keys, it cannot know which rows an input makes: that depends
 * on rows that have not come. So it is told which of the input's keys get a row, by their places
 * among all keys for which the input wants rows. It makes those, changes the rows that it has, and
 * leaves all others out: these are absent in the primary, too, or have not come. So each row that
 * it has is that of the primary, after each input, and it evicts for the same rows.
 *
 * What admits keys follows the rows in slices. Nobody asks it until all of it has come. Until then
 * the replica is told which words of it inputs change.
 *
 * A request that writes ragged rows may fail by what they are. So such a replica is told which ones
 * fail, and where (shard_failures.c).
 *
 * Rows that Gets create. A replica gets no Gets. So a Get of a primary's shard creates nothing; it
 * reads initial values, and notes the key. The server then has the rows made by an input.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_SHARD_SHARD_ROLES_H
#define RUBATO_MODELS_SHARD_SHARD_ROLES_H

#include "models/shard/shard.h"

typedef enum {
    SHARD_ALONE,   /* its part has no replicas */
    SHARD_LEADS,   /* it is that of a primary */
    SHARD_FOLLOWS, /* it is that of a replica */
} ShardRole;

/* As it is sent. */
typedef struct {
    uint64_t made; /* rows that the input had made before */
    RubatoKey key;
} ShardEviction;

/* A shard begins as SHARD_ALONE. One that follows and leads from now on evicts as any other; it may
 * be above its bound then, and does not grow. */
void shard_set_role(RubatoShard *shard, ShardRole role);

/* Whether inputs may evict rows of which replicas must be told. */
bool shard_tells_evictions(const RubatoShard *shard);

/* As it is told. */
typedef struct {
    uint64_t write;     /* the number of the request among those of the input, from 1 on */
    uint64_t n_rows;    /* of its rows that it had written before */
    const char *reason; /* of at most SHARD_FAILURE_MOST_BYTES */
} ShardFailure;

#define SHARD_FAILURE_MOST_BYTES ((size_t)1000)

/* A word of what a shard admits keys by (shard_get_admission): as it is told. */
typedef struct {
    uint64_t at, word;
} ShardWord;

/* Whether it depends on other rows which ones an input makes; then a replica that does not have all
 * rows yet must be told which ones these are. */
bool shard_chooses_rows(const RubatoShard *shard);

/* Whether such a replica must be told that, or which requests fail. */
bool shard_tells_more(const RubatoShard *shard);

/* Of a shard that leads and tells more: whether it notes what is told. */
void shard_note_more(RubatoShard *shard, bool notes);

/* Whether replicas get an input only when this shard has handled it. */
bool shard_goes_first(const RubatoShard *shard);

/* An input begins: what was noted belongs to the one before. It ends: nothing more is noted. */
void shard_begin_input(RubatoShard *shard);
void shard_end_input(RubatoShard *shard);

/* Of a shard that notes them, after an input: the places of the keys for which it has made rows, in
 * their order. */
const uint64_t *shard_made(const RubatoShard *shard, size_t *n);

/* Of a shard that leads: from now on it also notes which words of what admits keys inputs change,
 * until it notes nothing more. The second function is for after an input: these words, as they are
 * then. */
void shard_note_words(RubatoShard *shard);
const ShardWord *shard_words(const RubatoShard *shard, size_t *n);

/* Of a shard that follows. False: they make no sense. */
bool shard_set_admission_words(RubatoShard *shard, const ShardWord *words, size_t n);

/* Likewise: the requests that have failed. */
const ShardFailure *shard_failures(const RubatoShard *shard, size_t *n);

/* Of a shard that follows and is told more: whether some of its rows are still to come. False:
 * there is no memory. */
bool shard_await_rows(RubatoShard *shard, bool awaits);

/* Of a shard that awaits rows, before an input: the next places in their order. False: it awaits
 * none. */
bool shard_expect_made(RubatoShard *shard, const uint64_t *places, size_t n);

/* Likewise: the next request that fails. Copies the reason. */
bool shard_expect_failure(RubatoShard *shard, const ShardFailure *failure);

/* Of a shard that leads, after an input: the rows that it evicted. */
const ShardEviction *shard_evictions(const RubatoShard *shard, size_t *n);

/* Of a shard that follows, before an input. False: it is of no use to this shard. */
bool shard_expect_evictions(RubatoShard *shard, const ShardEviction *evictions, size_t n);

/* Of a shard that follows, around an input. The second one forgets what was expected, also if no
 * input has come. */
void shard_begin_told_input(RubatoShard *shard);
void shard_end_told_input(RubatoShard *shard);

/* The keys that Gets of a shard that leads have asked for, and that have no rows; a key may come
 * twice. NULL: there are none. (transfer full) */
GArray *shard_take_wanted(RubatoShard *shard);

/* Creates the rows of keys that are absent, as a Get does if its table says so. */
void shard_create_rows(RubatoShard *shard, const RubatoKey *keys, size_t n);

#endif
