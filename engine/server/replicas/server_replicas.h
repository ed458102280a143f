/* A replica of a part on a server: rows and models that get the inputs of the part from its
 * primary, which is on another node.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_REPLICAS_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_REPLICAS_H

#include "engine/server/replicas/replica_feed.h"
#include "engine/server/server_private.h"

typedef struct {
    uint32_t epoch;
    RubatoModel *model;
    InputSequences *had; /* by worker */
} ReplicaModel;

typedef enum {
    REPLICA_WHOLE,    /* it has what was acknowledged */
    REPLICA_EXPECTED, /* it has nothing yet, and takes in nothing but the begin of its image */
    REPLICA_COMING,   /* it has a part of its image */
    REPLICA_FOLLOWS,  /* it has its image and later inputs, and does not know yet that it counts */
    REPLICA_GIVEN_UP, /* there was no memory for it */
} ReplicaStage;

struct Replica {
    uint32_t table, part;
    uint32_t primary; /* a server's number */
    ReplicaStage stage;
    uint32_t made; /* the number of the map by which it follows this primary; 0: since its table
                    * was made. Then it sees tasks begin; later its primary tells them */
    RubatoShard *shard;
    GArray *models;            /* of ReplicaModel */
    uint64_t position;         /* it has had the inputs up to this number */
    InputSequences *had;       /* between tasks, by node */
    unsigned char *call_bytes; /* of a call of a handler whose pieces have come in part; or NULL */
    size_t n_call_bytes, n_call_come;
    bool is_deaf;  /* the primary's node is lost: nothing is taken in from it any more */
    bool had_last; /* the primary is to be replaced, and has said so in its last input: the next
                    * one may be another one's */
};

/* Takes over the shard. (transfer full) */
Replica *replica_new(const Server *server, uint32_t table, uint32_t part, uint32_t primary,
                     RubatoShard *shard);

/* NULL is allowed. */
void replica_free(Replica *replica);

/* The replica of a part that is here; NULL: none. */
Replica *server_replica(const Server *server, uint32_t table, uint32_t part);

/* Takes over the model of a task; ends those of a task. */
void replica_begin_task(Replica *replica, const ReplicaModel *model);
void replica_end_task(Replica *replica, uint32_t epoch);

/* What there is of a task; all NULL: nothing. */
ReplicaModel replica_find_model(const Replica *replica, uint32_t epoch);

/* Whether a message comes from the node of the primary that this server knows of. */
bool replica_is_from_primary(const Server *server, const Replica *replica, const Message *message);

/* Whether a message has as many words of so many bytes as it says. */
static inline bool replica_has_words(const Message *message, size_t bytes)
{
    return message->request.keys.keys == NULL && message->request.keys.at == NULL &&
           message->input_bytes == message->request.keys.n * bytes;
}

/* A MESSAGE_FEED with a number. */
void server_take_input(Server *server, Message *message);

/* Tells the primary up to which input the replica has had all. */
void server_tell_position(const Server *server, const Replica *replica);

/* Tells it a number of the part that a message is about: a position, or one that is none. `made` is
 * that of the replica. */
void server_tell_primary(const Server *server, const Message *about, uint32_t primary,
                         uint64_t made, uint64_t number);

/* As server_find_work, for a MESSAGE_FEED. */
size_t server_find_input_work(const Server *server, const Message *message);

#endif
