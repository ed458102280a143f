/* A primary gives its part to one of its replicas, on purpose (docs/replication.md).
 *
 * Threads: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_HANDOVER_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_HANDOVER_H

#include "engine/server/replicas/server_promote.h"
#include "engine/server/server_parts.h"

/* SETTLE. The part is to get another primary than this server, if that is what it has now. All that
 * was sent by the old map has been handled. */
void server_settle_part(Server *server, const PartPlace *place);

/* PROMOTE, for a primary. It stays one, with these replicas. Or it does not: the part leaves the
 * server. */
void server_keep_part(Server *server, const PartPlace *place);
void server_give_part(Server *server, const PartPlace *place);

/* OPEN. What requests wait for an answer in the parts that have left since: they go to the new
 * primaries. (transfer full) NULL: no part has left. */
GPtrArray *server_take_given(Server *server);

/* Cancels these requests: the run has ended. */
void server_drop_given(Server *server);

/* Cancels those of such a part, and frees it. */
void server_drop_given_part(MovingPart *given);

#endif
