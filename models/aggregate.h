/* Sums over a clock: the deltas of all workers, by key.
 *
 * Rows are summed in the order in which they are added. So the sum of a key depends only on who
 * sent what, and on nothing else on the server.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_AGGREGATE_H
#define RUBATO_MODELS_AGGREGATE_H

#include <rubato/request.h>
#include <rubato/table.h>

#include "models/shard/shard.h"

typedef struct Aggregate Aggregate;

/* kind: RUBATO_AGGREGATE_SUM or _MEAN. The shard outlives it. (transfer full) */
Aggregate *aggregate_new(const RubatoTableSpec *spec, RubatoShard *shard);
void aggregate_free(Aggregate *aggregate);

/* Adds a request's deltas. The requests of one worker come together. False if there is no memory
 * for all of it. */
bool aggregate_take(Aggregate *aggregate, const RubatoRequest *request);

/* Applies to each key its sum, or the mean over the workers that sent any for it, and begins
 * anew. */
void aggregate_apply(Aggregate *aggregate);

/* Does all of this for the Adds of a clock, chained in the order of their workers, without a search
 * for keys: if they are few, and the keys of each are sorted and none repeats in it. Their deltas
 * change. False: nothing has been done. The result is the same, bit for bit. */
bool aggregate_apply_sorted(Aggregate *aggregate, RubatoRequest *adds);

#endif
