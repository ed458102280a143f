/* Gets and Adds of all parts of a table at once: the servers' side. See tables/joint.h.
 *
 * Threads: any that owns no server. */
#ifndef RUBATO_ENGINE_SERVER_JOINT_SERVER_JOINT_H
#define RUBATO_ENGINE_SERVER_JOINT_SERVER_JOINT_H

#include "tables/client/client.h"

/* Sets route->joint, adds_jointly and defers_jointly. All else of the route is set. */
void server_join_parts(TableRoute *route);

#endif
