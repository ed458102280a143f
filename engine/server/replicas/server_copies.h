/* Replicas that primaries make in the place of lost ones.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_COPIES_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_COPIES_H

#include "engine/server/replicas/server_promote.h"
#include "engine/server/server_private.h"

/* Replicas of the part which are not there yet are to be made, on servers that expect them by that
 * map. Nothing if the part's primary is not here. */
void server_order_copies(Server *server, const PartPlace *place);

/* Goes on with the present copy if its replica has had what was sent, and begins the next one if it
 * has ended. To be called after what may bring that about. */
void server_make_copies(Server *server);

/* A handler is about to write to the part: if this is copied, sends what is left of its rows,
 * unless they are ragged. */
void server_end_slices(Server *server, uint32_t table, uint32_t part);

/* Makes no more of them. Replicas that are half made are dropped with the next map. */
void server_forget_copies(Server *server);

#endif
