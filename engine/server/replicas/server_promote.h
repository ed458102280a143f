/* What servers do when a node is lost: they tell which parts they have, and replicas become
 * primaries.
 *
 * Threads: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_PROMOTE_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_PROMOTE_H

#include "engine/server/server.h"

/* A part, or a replica of it, that a server has. */
typedef struct {
    uint32_t table, part;
    bool is_primary;
    uint64_t position; /* of a replica */
} HeldPart;

/* Where a part of the table is from now on. */
typedef struct {
    uint32_t table, part;
    uint32_t map; /* the number of the new map */
    uint32_t primary;
    uint32_t n_replicas;
    const uint32_t *replicas;
} PartPlace;

/* The node is lost: replicas take no input of a primary there any more, and primaries do without
 * replicas there. */
void server_leave_node(Server *server, uint32_t node);

/* Each of n servers does so soon. Returns at once. Any thread. */
void servers_post_leave(Server *servers, uint32_t n, uint32_t node);

/* The parts of a table that are here, or a replica of which is.
 * (*parts: of HeldPart, which it adds to) */
void server_list_parts(const Server *server, uint32_t table, GArray *parts);

/* Whatever the server has of the part becomes what the place says, or is dropped. */
void server_set_place(Server *server, const PartPlace *place);

/* After that, as the primary of parts: the workers of the lost node retire in all tasks. A task
 * that does not go on without them has been cancelled before. */
void server_lose_workers(Server *server, uint32_t node);

#endif
