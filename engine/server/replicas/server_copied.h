/* A replica that is made in the place of a lost one.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_COPIED_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_COPIED_H

#include "engine/server/replicas/server_promote.h"

/* The server is to get a replica of a part, by that map; its image comes from the primary. Takes
 * over the shard, which is empty. Nothing if it has the part. (transfer full) */
void server_expect_replica(Server *server, const PartPlace *place, RubatoShard *shard);

/* Whether a MESSAGE_FEED makes a replica, or tells one a task; it then has been handled. */
bool server_take_of_copy(Server *server, Message *message);

#endif
