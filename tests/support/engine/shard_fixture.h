/* Shards of rows for the tests of storages.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_ENGINE_SHARD_FIXTURE_H
#define TESTS_SUPPORT_ENGINE_SHARD_FIXTURE_H

#include "models/shard/shard.h"

#define SHARD_FIRST_KEY 1000

/* A shard of the keys SHARD_FIRST_KEY .. SHARD_FIRST_KEY + n_keys - 1; fills in the rest of the
 * spec. (transfer full) */
RubatoShard *shard_make(RubatoTableSpec *spec, const char *storage, uint64_t n_keys);

#endif
