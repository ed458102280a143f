/* A server: an actor that owns one shard of every table, and a model over it for each task that
 * uses the table.
 *
 * Threads: server_init, _start, _stop and _clear from the engine's; servers_run from any thread
 * that is not a server's owner. Everything inside runs as the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_H
#define RUBATO_ENGINE_SERVER_SERVER_H

#include <rubato/model_ops.h>

#include "io/net/post_office.h"

typedef struct {
    Actor actor; /* first: the actor's handler finds the server */

    /* immutable */
    uint32_t number; /* over all nodes */
    PostOffice *office;
    void (*fail_task)(void *user, uint32_t epoch, const char *text); /* RUBATO_ERROR_MEMORY */
    void *user;

    /* owner only */
    GPtrArray *shards; /* RubatoShard by table id; NULL: dropped */
    GArray *bindings;  /* of Binding: the models of running tasks */
    uint64_t n_refused;
    bool starved;  /* the request that is handled could not be done for want of memory */
    void *reserve; /* memory to fail in order with; NULL while it is used */
} Server;

/* `fail_task` is called by the owner. */
void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, const char *text), void *user);
bool server_start(Server *server);
void server_stop(Server *server);
void server_clear(Server *server);

/* Runs a function as the owner of each of n servers, on their threads, and waits for all of
 * them. */
void servers_run(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                 void *data);

/* The same without waiting; the call gets one part for each server. */
void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call);

/* For functions that run as the owner. */

/* Takes over a shard of a table. */
void server_add_shard(Server *server, uint32_t table, RubatoShard *shard);
void server_drop_shard(Server *server, uint32_t table);

/* A model over a table's shard for a task; setup->first_key and n_keys are of this server. n_nodes
 * as for model_new. Sources whose workers_of is 0 are retired at once. */
bool server_begin_task(Server *server, uint32_t epoch, uint32_t table,
                       const RubatoModelSetup *setup, uint32_t n_nodes, const uint32_t *workers_of,
                       GError **error);

/* Ends all models of a task: what is parked in them is answered as cancelled. Once more does
 * nothing. */
void server_end_task(Server *server, uint32_t epoch);

#endif
