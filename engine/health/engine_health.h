/* What a node tells the probes of what has started it.
 *
 * Threads: the engine's owner. */
#ifndef RUBATO_ENGINE_HEALTH_ENGINE_HEALTH_H
#define RUBATO_ENGINE_HEALTH_ENGINE_HEALTH_H

#include <rubato/engine.h>
#include <stdbool.h>

#define HEALTH_VARIABLE "RUBATO_HEALTH"

/* Answers at the port that RUBATO_HEALTH names, before the nodes meet; nothing if it is not set, or
 * is empty. False with RUBATO_ERROR_INVALID if it is no port, or as health_new() fails. */
bool engine_begin_health(RubatoEngine *engine, GError **error);

/* From now on the node is ready: it takes part in its run. */
void engine_set_ready(RubatoEngine *engine);

void engine_end_health(RubatoEngine *engine);

#endif
