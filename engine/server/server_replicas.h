/* A replica of a part on a server: rows and models that get the inputs of the part from its
 * primary, which is on another node.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_REPLICAS_H
#define RUBATO_ENGINE_SERVER_SERVER_REPLICAS_H

#include "engine/server/replica_feed.h"
#include "engine/server/server_private.h"

typedef struct {
    uint32_t epoch;
    RubatoModel *model;
    InputSequences *had; /* by worker */
} ReplicaModel;

struct Replica {
    uint32_t table, part;
    uint32_t primary; /* a server's number */
    RubatoShard *shard;
    GArray *models;      /* of ReplicaModel */
    uint64_t position;   /* it has had the inputs up to this number */
    InputSequences *had; /* between tasks, by node */
    bool is_deaf;        /* the primary's node is lost: nothing is taken in from it any more */
};

/* Takes over the shard. (transfer full) */
Replica *replica_new(const Server *server, uint32_t table, uint32_t part, uint32_t primary,
                     RubatoShard *shard);

/* NULL is allowed. */
void replica_free(Replica *replica);

/* Takes over the model of a task; ends those of a task. */
void replica_begin_task(Replica *replica, const ReplicaModel *model);
void replica_end_task(Replica *replica, uint32_t epoch);

/* A MESSAGE_FEED. */
void server_take_input(Server *server, Message *message);

/* Tells the primary up to which input the replica has had all. */
void server_tell_position(const Server *server, const Replica *replica);

/* As server_find_work, for a MESSAGE_FEED. */
size_t server_find_input_work(const Server *server, const Message *message);

#endif
