/* The description of a kind of request, for servers and for the engine's calls that ask them.
 *
 * A new request needs a kind in io/net/message.h, a constant RequestOps in a file of
 * engine/server/requests/, and a row in the array of engine/server/requests.c. If it carries more
 * than keys, input and output, it also needs a place in io/net/link/wire.c.
 *
 * Threads: the functions are called by the server's owner; the rest is constant. */
#ifndef RUBATO_ENGINE_SERVER_REQUEST_OPS_H
#define RUBATO_ENGINE_SERVER_REQUEST_OPS_H

#include "io/net/message.h"
#include "models/model.h"
#include "models/shard/shard.h"

/* What goes with each key of a request. */
typedef enum {
    REQUEST_NO_ROWS,
    REQUEST_INPUT,  /* a row comes with the request: Message.request.input */
    REQUEST_OUTPUT, /* a row goes back: Message.request.output */
    REQUEST_BOTH,   /* one comes and one goes back, of the same size */
} RequestRows;

typedef struct {
    const char *name; /* "Get" */

    RequestRows rows;
    /* Bytes of such a row; NULL: there are no rows. */
    size_t (*row_bytes)(const RubatoTableSpec *spec);

    /* It may release requests that a model keeps: its time depends on their number. */
    bool releases;

    /* It changes rows, the rule's state or what a model answers, and goes to the replicas of its
     * part. */
    bool is_input;

    /* It brings a part that moves: only a server that expects the part takes it. */
    bool is_of_move;

    /* If the part is not here, the sender may send the request again by a newer map: the request
     * only reads, or cannot come while the part moves. */
    bool is_sent_again;

    /* It is about rows of one length: a table of ragged rows takes it only without keys. */
    bool is_of_even_rows;

    /* It needs no table: the server only answers that it has come. */
    bool is_empty;

    /* What is wrong with a request of another node; NULL if nothing is. The caller has checked its
     * sizes, and that it comes from a worker of its task. The function is NULL if nothing can be
     * wrong. */
    const char *(*find_fault)(const RubatoShard *shard, const RubatoRequest *request);

    /* Handle the request of a worker in a task, and of the engine between tasks. NULL: it cannot
     * come then. In a task the model gives back the request, now or later. Between tasks the
     * request is done when the function returns. The shard's alarm reports missing memory. */
    void (*in_task)(RubatoModel *model, RubatoRequest *request);
    void (*between_tasks)(RubatoShard *shard, RubatoRequest *request);
} RequestOps;

/* NULL for kinds that are not requests to a server. */
extern const RequestOps *const request_ops[MESSAGE_N_KINDS];

/* Bytes of the row that goes with each key of a request. */
static inline size_t request_row_bytes(const RequestOps *ops, const RubatoTableSpec *spec)
{
    return ops->row_bytes == NULL ? 0 : ops->row_bytes(spec);
}

/* The kind of message by which a request came that a model keeps, and by which it goes on to
 * another server. */
MessageKind request_kind_of_kept(const RubatoRequest *kept);

/* A find_fault: finds keys that the shard does not hold. */
const char *request_find_key_fault(const RubatoShard *shard, const RubatoRequest *request);

/* The same for keys that are positions in a list of n entries. */
const char *request_find_number_fault(uint64_t n, const RubatoRequest *request);

#endif
