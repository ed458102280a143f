/* A server from inside: what its files share.
 *
 *   server.c        what happens to a message; models of tasks
 *   server_parts.c  parts that come and go, and what is sent after them
 *
 * Threads: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_PRIVATE_H
#define RUBATO_ENGINE_SERVER_SERVER_PRIVATE_H

#include "engine/server/server.h"
#include "models/model.h"
#include "models/shard.h"

/* A table's parts on this server. */
typedef struct {
    uint32_t n_parts;
    struct {
        RubatoShard *shard; /* NULL: it is not here */
        Server *went_to; /* where it went when it was last here; NULL: it is here, or never was */
    } parts[];
} ServerTable;

/* A part that is here, in a task. */
typedef struct {
    RubatoShard *shard;
    RubatoModel *model;
} BoundPart;

/* A task's models over one table. */
typedef struct {
    uint32_t epoch;
    uint32_t table;
    const char *table_name;
    uint32_t n_parts;
    uint32_t n_here;
    uint32_t *here;   /* the parts that are here, ascending */
    BoundPart *parts; /* by part; model NULL: it is not here */
} Binding;

/* ---- server.c ---- */

void server_answer(Server *server, Message *message, CallStatus status);

/* NULL where there is none. */
ServerTable *server_find_table(const Server *server, uint32_t table);
Binding *server_find_binding(Server *server, uint32_t epoch, uint32_t table);

/* Ends a model: what is parked in it is answered as cancelled. */
void server_end_model(Server *server, RubatoModel *model);

/* The task cannot go on: a request of it could not be done for want of memory. */
void server_starve(Server *server, const Binding *binding);

/* ---- server_parts.c ---- */

/* Where the part of a request is not here any more, hands the message to the server that it went
 * to. False: the part is here, or never was, and the message is still the caller's. */
bool server_pass_on(Server *server, Message *message);

/* While a part leaves, a clock for it goes to the server that gets it. */
void server_pass_on_clock(const Server *server, const Message *message);

static inline bool server_is_leaving(const Server *server, uint32_t table, uint32_t part)
{
    return G_UNLIKELY(server->leaving_to != NULL) && server->leaving_table == table &&
           server->leaving_part == part;
}

#endif
