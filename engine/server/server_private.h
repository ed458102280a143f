/* A server from inside: what its files share.
 *
 *   server.c        what happens to a message; models of tasks
 *   server_parts.c  parts that move, and messages for parts that have left
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
        Server *went_to;    /* where it last went; NULL: it is here, or never was */
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
    BoundPart *parts; /* by part; model NULL: the part is not here */
} Binding;

/* ---- server.c ---- */

void server_answer(Server *server, Message *message, CallStatus status);

/* NULL where there is none. */
ServerTable *server_find_table(const Server *server, uint32_t table);
Binding *server_find_binding(Server *server, uint32_t epoch, uint32_t table);

/* Ends a model: requests parked in it are answered as cancelled. */
void server_end_model(Server *server, RubatoModel *model);

/* Fails the task, because one of its requests failed for lack of memory. */
void server_starve(Server *server, const Binding *binding);

/* ---- server_parts.c ---- */

/* If the part of a request has left this server, hands the message to the server to which the part
 * went. False: the part is here, or never was; the caller still owns the message. */
bool server_pass_on(Server *server, Message *message);

/* While a part leaves, a clock for it goes to the server that gets it. */
void server_pass_on_clock(const Server *server, const Message *message);

static inline bool server_is_leaving(const Server *server, uint32_t table, uint32_t part)
{
    return G_UNLIKELY(server->leaving_to != NULL) && server->leaving_table == table &&
           server->leaving_part == part;
}

#endif
