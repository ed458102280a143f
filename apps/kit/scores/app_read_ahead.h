/* Batches read ahead of the step that uses them, so that a worker can announce their keys.
 *
 * Threads: the worker that opened the reader. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_READ_AHEAD_H
#define RUBATO_APPS_KIT_SCORES_APP_READ_AHEAD_H

#include "apps/kit/scores/app_features.h"

typedef struct AppReadAhead AppReadAhead;

/* Takes the reader. The reader may be NULL after an error; then the result is NULL too. n_ahead:
 * how many steps before its own a batch may be asked for. scaling: by what values are standardised;
 * NULL: they are not. (transfer full) */
AppReadAhead *app_read_ahead_new(RubatoReader *reader, uint32_t n_ahead,
                                 const AppFeatures *scaling);

/* NULL is allowed. */
void app_read_ahead_free(AppReadAhead *ahead);

/* Before the first step: leaves out so many batches. Returns how many rows these have. */
uint64_t app_read_ahead_skip(AppReadAhead *ahead, uint64_t n_batches);

/* The batch of a step: valid until that of step + n_ahead + 1 is asked for. NULL at the end and
 * after an error, which app_read_ahead_ended tells apart. (transfer none) */
const RubatoBatch *app_read_ahead_batch(AppReadAhead *ahead, uint64_t step);

/* True if there are no more batches because all were read; otherwise false, with the error. */
bool app_read_ahead_ended(AppReadAhead *ahead, GError **error);

/* A RubatoIterationFunc over an AppReadAhead: the keys of the step's batch. */
bool app_read_ahead_tell(uint64_t step, RubatoIteration *keys, void *ahead);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppReadAhead, app_read_ahead_free)

#endif
