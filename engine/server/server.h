/* A server is an actor that owns shards: one for each part of a table that is here. For every task
 * that uses the table it owns a model over each shard.
 *
 * Threads: server_init, _start, _stop and _clear from the engine's; servers_run and server_run_here
 * from any thread that is not a server's owner. Everything inside runs as the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_H
#define RUBATO_ENGINE_SERVER_SERVER_H

#include <rubato/engine.h>
#include <rubato/model_ops.h>

#include "engine/server/no_numbers.h"
#include "io/history/history.h"
#include "io/net/deferred_adds.h"
#include "io/net/post_office/post_office.h"
#include "models/storage/memory_home.h"

/* A part whose state comes from another node. */
typedef struct {
    uint32_t node; /* that sends it; a number */
    uint32_t table, part;
    RubatoShard *shard; /* NULL: nothing is expected */
} Arrival;

/* What a part has taken of its server. */
typedef struct {
    uint64_t n_bytes;         /* of memory, now; 0: it is not here */
    uint64_t n_requests;      /* so far, of workers and engines of all nodes */
    uint64_t n_network_bytes; /* so far: keys and rows of requests of other nodes, and of answers */
} PartUse;

/* Where sweeps of expired rows are, and how fast. */
typedef struct {
    int64_t (*now_us)(void); /* the time; set before the start */
    uint32_t next;           /* of the shards that are swept */
    uint32_t n_looks;        /* at rows of it at a time; 0: not known yet */
} SweepPace;

typedef struct Server Server;
struct Server {
    Actor actor; /* first: the actor's handler finds the server */

    /* immutable */
    uint32_t number; /* over all nodes */
    PostOffice *office;
    void (*fail_task)(void *user, uint32_t epoch, int code, const char *text); /* RubatoError */
    void *user;
    /* it has made n replicas, and could not make n_missing; set before the start, or NULL */
    void (*tell_made)(void *user, uint32_t server, uint32_t n, uint32_t n_missing);
    NoNumbers *no_numbers;  /* of the node; set before the start. NULL: they are not logged */
    History *history;       /* of the node; set before the start. NULL: none is kept */
    const MemoryHome *home; /* of its shards' rows; set before the start. NULL: none */

    /* owner only */
    GPtrArray *tables;   /* of ServerTable, by table id; NULL: dropped */
    GArray *bindings;    /* of Binding: the models of running tasks */
    GHashTable *streams; /* of the history, by table id, for what handlers change; NULL: none */
    uint64_t n_refused;
    struct ServerCopies *copies; /* replicas that its parts are to get; NULL: none */
    Call *settling;   /* ends when all primaries have settled that are to; NULL: there is none */
    GPtrArray *given; /* of MovingPart: see server_handover.c; NULL until there is any */
    Arrival arrival;  /* its models are in the bindings */
    bool starved;     /* the present request failed for lack of memory, or for the complaint */
    char *complaint;  /* a kept request failed, and why; NULL: none has */
    GArray *partial_calls;    /* of handlers: see server_handlers.c; NULL until there are any */
    uint64_t collected_bytes; /* of them */
    SweepPace sweeps;         /* see server_sweep.c */
    uint64_t seconds;         /* the time of parts that count it, as the sweeper told it last */
    void *reserve;            /* memory for the error when memory runs out; NULL while it is used */
};

/* The owner calls `fail_task`. */
void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, int code, const char *text),
                 void *user);

/* Before the start: counts what parts take, for server_add_uses. */
void server_measure(Server *server);

bool server_start(Server *server);
void server_stop(Server *server);
void server_clear(Server *server);

/* Runs a function as the owner of each of n servers, on their threads, and waits for all of
 * them. */
void servers_run(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                 void *data);

/* The same for one server, on this thread if the server is idle now or in a moment: then nobody is
 * woken. */
void server_run_here(Server *server, void (*function)(Server *server, void *data), void *data);

/* The same without waiting; the call gets one part for each server. */
void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call);

/* The run has ended: answers that wait for replicas are cancelled soon, and no others wait. Returns
 * at once. */
void servers_post_end_feeds(Server *servers, uint32_t n);

/* Copies that were ordered are begun soon. Returns at once. */
void servers_post_copies(Server *servers, uint32_t n);

/* Drops a table on n servers. Any thread that is not their owner. */
void servers_drop_table(Server *servers, uint32_t n, uint32_t table);

/* These functions run as the owner. */

/* Adds a table of n parts, none of which is here yet. Dropping the table frees the parts that are
 * here. Dropping an unknown table does nothing. */
void server_add_table(Server *server, uint32_t table, uint32_t n_parts);
void server_drop_table(Server *server, uint32_t table);

/* Takes over the shard of a part. */
void server_add_shard(Server *server, uint32_t table, uint32_t part, RubatoShard *shard);

/* The part, whose shard is here, has replicas on n servers of other nodes. */
void server_add_feed(Server *server, uint32_t table, uint32_t part, const uint32_t *replicas,
                     uint32_t n);

/* Takes over the shard of a replica of a part, whose primary is on that server of another node. */
void server_add_replica(Server *server, uint32_t table, uint32_t part, uint32_t primary,
                        RubatoShard *shard);

/* A replica's rows, and the number of inputs that it has had; NULL: it is not here. */
RubatoShard *server_find_replica(const Server *server, uint32_t table, uint32_t part,
                                 uint64_t *position);

/* Whether the part, or a replica of it, is here, or is expected. */
bool server_has_part(const Server *server, uint32_t table, uint32_t part);

/* NULL: the part is not here. */
RubatoShard *server_find_shard(const Server *server, uint32_t table, uint32_t part);

/* Adds the counts of all parts of a table that are here: its rows, bytes, and what was evicted,
 * expired, admitted and refused. */
void server_sum_table(const Server *server, uint32_t table, RubatoTableStats *sum);

/* Tells the time to the parts of tables whose rows expire, and removes expired rows of tables that
 * tasks use, for most_us microseconds or little more. The next call goes on where this one ends.
 * False: nothing is left to be done for now. */
bool server_sweep(Server *server, uint64_t seconds, int64_t most_us);

/* Begins a task that uses a table: creates a model over the shard of each part that is here. setup
 * has no keys: each model gets those of its shard. n_nodes as for model_new. Sources whose
 * workers_of is 0 are retired at once. workers_of stays until the task has ended here. */
bool server_begin_task(Server *server, uint32_t epoch, uint32_t table,
                       const RubatoModelSetup *setup, uint32_t n_nodes, const uint32_t *workers_of,
                       GError **error);

/* Where its workers keep their Adds of a table, if they are all in this process; NULL: they send
 * them. adds stays until the task has ended here. */
void server_defer_adds(Server *server, uint32_t epoch, uint32_t table, DeferredAdds *adds);

/* Parts do not retire workers of the task that are lost: a process that takes the place of their
 * node has them again. */
void server_keep_lost_workers(Server *server, uint32_t epoch, uint32_t table);

/* All workers of a task have retired, and all Adds that they have made to the table have come. If
 * no clock has said so yet, the models of its parts without replicas hear it now. */
void server_retire_all(Server *server, uint32_t epoch, uint32_t table);

/* Ends all models of a task: requests parked in them are answered as cancelled. A second call does
 * nothing. */
void server_end_task(Server *server, uint32_t epoch);

/* Adds what the parts of a table that are here, or were, have taken. Requests count only after
 * server_measure. */
void server_add_uses(const Server *server, uint32_t table, PartUse *uses);

#endif
