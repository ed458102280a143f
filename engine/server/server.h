/* A server: an actor that owns any number of shards of each table, one for each part of the table
 * that is here, and a model over each for every task that uses the table.
 *
 * Threads: server_init, _start, _stop and _clear from the engine's; servers_run from any thread
 * that is not a server's owner. Everything inside runs as the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_H
#define RUBATO_ENGINE_SERVER_SERVER_H

#include <rubato/model_ops.h>

#include "io/net/post_office.h"
#include "tables/part_map.h"

typedef struct Server Server;
struct Server {
    Actor actor; /* first: the actor's handler finds the server */

    /* immutable */
    uint32_t number; /* over all nodes */
    PostOffice *office;
    void (*fail_task)(void *user, uint32_t epoch, const char *text); /* RUBATO_ERROR_MEMORY */
    void *user;

    /* owner only */
    GPtrArray *tables; /* of ServerTable, by table id; NULL: dropped */
    GArray *bindings;  /* of Binding: the models of running tasks */
    uint64_t n_refused;
    Server *leaving_to; /* who gets the part that is leaving; NULL: none is */
    uint32_t leaving_table, leaving_part;
    bool starved;  /* the request that is handled could not be done for want of memory */
    void *reserve; /* memory to fail in order with; NULL while it is used */
};

/* `fail_task` is called by the owner. */
void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, const char *text), void *user);
bool server_start(Server *server);
void server_stop(Server *server);
void server_clear(Server *server);

/* Moves a part of a table from one server of this process to another: see server_parts.c. One move
 * at a time, and no task begins and no table is made or dropped meanwhile. Any thread that is not a
 * server's owner. */
void servers_move_part(Server *from, Server *to, uint32_t table, uint32_t part, PartMap *map);

/* Runs a function as the owner of each of n servers, on their threads, and waits for all of
 * them. */
void servers_run(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                 void *data);

/* The same without waiting; the call gets one part for each server. */
void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call);

/* For functions that run as the owner. */

/* A table of so many parts, none of which is here yet. Dropping it frees those that are; of a table
 * that is not there it does nothing. */
void server_add_table(Server *server, uint32_t table, uint32_t n_parts);
void server_drop_table(Server *server, uint32_t table);

/* Takes over the shard of a part. */
void server_add_shard(Server *server, uint32_t table, uint32_t part, RubatoShard *shard);

/* NULL: the part is not here. */
RubatoShard *server_find_shard(const Server *server, uint32_t table, uint32_t part);

/* The rows of all parts of a table that are here, and the bytes they take. */
void server_table_size(const Server *server, uint32_t table, uint64_t *n_rows, uint64_t *n_bytes);

/* A task that uses a table: a model over the shard of each part that is here. setup without keys:
 * each model gets those of its shard. n_nodes as for model_new. Sources whose workers_of is 0 are
 * retired at once. */
bool server_begin_task(Server *server, uint32_t epoch, uint32_t table,
                       const RubatoModelSetup *setup, uint32_t n_nodes, const uint32_t *workers_of,
                       GError **error);

/* Ends all models of a task: what is parked in them is answered as cancelled. Once more does
 * nothing. */
void server_end_task(Server *server, uint32_t epoch);

#endif
