/* All that the scheduler knows, as bytes, with which the journal begins anew.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_AS_BYTES_H
#define RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_AS_BYTES_H

#include "engine/scheduler/scheduler_state.h"

/* (transfer full) */
GByteArray *state_write(Scheduler *scheduler);

/* Into a new scheduler of the same configuration. False: it makes no sense; then the scheduler can
 * only be freed. */
bool state_read(Scheduler *scheduler, const void *bytes, size_t size);

/* Nothing of an event is left to be delivered: the journal begins anew if it has grown enough. */
void state_keep(Scheduler *scheduler);

#endif
