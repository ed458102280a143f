/* Messages between the primary of a part and its replicas. They are no requests of workers:
 * server_feed.c and server_replicas.c handle them.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"

extern const RequestOps feed_request, position_request;

const RequestOps feed_request = {
    .name = "input of a replica",
    .releases = true,
};

const RequestOps position_request = {
    .name = "position of a replica",
};
