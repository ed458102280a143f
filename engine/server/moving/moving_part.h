/* A part's state is sent to a server of another node: what the files that send it share.
 *
 *   moving_part.c   the requests of models, and how any request is sent
 *   moving_rows.c   rows, and what else belongs to the shard
 *   moving_ahead.c  rows, before that, while requests go on
 *
 * Threads: that of the engine's calls; of part steps, in a HAND_OVER. */
#ifndef RUBATO_ENGINE_SERVER_MOVING_MOVING_PART_H
#define RUBATO_ENGINE_SERVER_MOVING_MOVING_PART_H

#include "engine/server/server_parts.h"

/* Sends a request; its call gets a part. message: all members except those that all requests of the
 * part have in common. */
bool moving_part_ask(const MovingPart *moving, const PartWay *way, Message *message,
                     GError **error);

/* Waits for the answers of a call. */
CallStatus moving_part_finish(const PartWay *way, Call *call);

/* Whether the status is CALL_OK; sets the error otherwise. */
bool moving_part_check(const MovingPart *moving, const PartWay *way, CallStatus status,
                       GError **error);

#endif
