/* This process goes on as the scheduler, in the place of one that has ended.
 *
 * Threads: that of the engine's calls, but where another is named. */
#ifndef RUBATO_ENGINE_JOIN_SCHEDULER_AGAIN_H
#define RUBATO_ENGINE_JOIN_SCHEDULER_AGAIN_H

#include <rubato/engine.h>
#include <rubato/error.h>

/* Whether this process is to do so: it is to join, and the scheduler runs on its node. */
bool scheduler_again_is_asked(const RubatoEngine *engine);

/* Opens the journal, if there is to be one, and says so in *journal of the engine. RUBATO_ERROR_IO,
 * RUBATO_ERROR_INVALID: such a run can have none, or there is none from which this process could go
 * on. */
bool scheduler_again_open_journal(RubatoEngine *engine, GError **error);

/* The engine has its network, and the scheduler has what the one before had: comes into the run, in
 * which it is no node yet. */
bool scheduler_again_enter(RubatoEngine *engine, GError **error);

/* The process gets its node's place. Notes which nodes were lost since it came into the run: only
 * the nodes of the run were told of them. Control actor. */
void scheduler_again_note_losses(RubatoEngine *engine);

#endif
