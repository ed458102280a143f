/* The clocks of a task's sources on one shard, and the lowest of them.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_PROGRESS_H
#define RUBATO_MODELS_PROGRESS_H

#include <rubato/model_ops.h>

/* Every clock is 0. NULL if there is no memory. (transfer full) */
RubatoProgress *progress_new(uint32_t n_sources);
void progress_free(RubatoProgress *progress);

/* A source has reached a clock. False, and nothing has changed, if it had reached it before. On
 * success *from is the clock that it had. Constant time, averaged over the clocks. */
bool progress_advance(RubatoProgress *progress, uint32_t source, uint64_t clock, uint64_t *from);

uint32_t progress_n_sources(const RubatoProgress *progress);
uint64_t progress_clock(const RubatoProgress *progress, uint32_t source);

/* The lowest clock of the sources that have not retired; RUBATO_CLOCK_RETIRED when all have. */
uint64_t progress_min(const RubatoProgress *progress);

/* A source that has the lowest clock, UINT32_MAX when all have retired. Searches. */
uint32_t progress_slowest(const RubatoProgress *progress);

#endif
