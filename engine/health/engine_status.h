/* What a node tells those who ask how far the run is: `rubato status`, at the port of the probes.
 *
 * Each node describes itself: its workers' clocks, where they are in the data. The scheduler's node
 * also describes the run, and asks the other nodes for their own parts when somebody asks it. So
 * nobody pays for this while nobody asks.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_HEALTH_ENGINE_STATUS_H
#define RUBATO_ENGINE_HEALTH_ENGINE_STATUS_H

#include <rubato/engine.h>

#define STATUS_FORMAT 1 /* of the members, for those who read them */

/* The other nodes may ask this one from now on. The engine's owner, when there are services. */
void engine_serve_status(RubatoEngine *engine);

/* The status as a{sv}; on the scheduler's node that of the run. Waits for other nodes for 2 s at
 * most. Any thread but those that receive or run services, with no lock. (transfer floating) */
GVariant *engine_status(RubatoEngine *engine);

/* Nobody is told anything about the run any more; returns when nobody is being told. The engine's
 * owner, behind services_break: whoever waits for other nodes then goes on at once. */
void engine_end_status(RubatoEngine *engine);

#endif
