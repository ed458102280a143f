/* What a node does for a process that takes the place of a lost one: the step ADMIT.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_JOIN_ADMIT_H
#define RUBATO_ENGINE_JOIN_ADMIT_H

#include <rubato/engine.h>

#include "engine/control/control.h"

/* Opens a link to the process, and on the scheduler's node adds the tables that there are to
 * *lines. If the process goes on as the scheduler, it has a link, and each node tells the tables.
 * False with an error if it cannot: the process is then refused. The thread of part steps. */
bool admit_process(RubatoEngine *engine, const ControlRecover *recover, GString *lines,
                   GError **error);

/* The node is lost no more: another process has its place. The control actor's owner. */
void admit_note_joined(RubatoEngine *engine, uint32_t node);

#endif
