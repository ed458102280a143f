/* Images, and notes of what changed, for what changes rows: each row is told before it changes, is
 * created, or goes.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_SHARD_IMAGE_PRIVATE_H
#define RUBATO_MODELS_SHARD_IMAGE_PRIVATE_H

#include <rubato/request.h>

typedef struct RubatoShard RubatoShard;
typedef struct ShardImage ShardImage;
typedef struct ShardChanges ShardChanges;

/* The rows of these keys are about to change, and the shard is watched. */
void shard_watch(RubatoShard *shard, const RubatoKeys *keys);

/* The two things that this does: if changes are noted, notes these, also of rows that go; and for a
 * shard with an image. */
void shard_note(RubatoShard *shard, const RubatoKeys *keys);
void shard_save(RubatoShard *shard, const RubatoKeys *keys);

/* shard_ahead.c: the same for a shard whose rows are sent ahead. */
void shard_note_ahead(RubatoShard *shard, const RubatoKeys *keys);

/* An image or notes have begun or ended. */
void shard_set_watched(RubatoShard *shard);

#endif
