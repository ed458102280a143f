/* Images, for what changes rows. Each row is saved before it changes, or is created.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_SHARD_IMAGE_PRIVATE_H
#define RUBATO_MODELS_SHARD_IMAGE_PRIVATE_H

#include <rubato/request.h>

typedef struct RubatoShard RubatoShard;
typedef struct ShardImage ShardImage;

/* The rows of these keys are about to change, and the shard has an image. */
void shard_save(RubatoShard *shard, const RubatoKeys *keys);

#endif
