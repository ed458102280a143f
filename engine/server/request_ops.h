/* What a kind of request is to servers, and to those of the engine who ask them.
 *
 * A new one is a kind in io/net/message.h, a constant RequestOps in a file of
 * engine/server/requests/ and its row in the array of engine/server/requests.c. What it carries
 * beside keys, input and output also wants its place in io/net/link/wire.c.
 *
 * Threads: the functions are called by the server's owner; the rest is constant. */
#ifndef RUBATO_ENGINE_SERVER_REQUEST_OPS_H
#define RUBATO_ENGINE_SERVER_REQUEST_OPS_H

#include "io/net/message.h"
#include "models/model.h"
#include "models/shard.h"

/* What goes with each key of a request. */
typedef enum {
    REQUEST_NO_ROWS,
    REQUEST_INPUT,  /* a row comes with the request: Message.request.input */
    REQUEST_OUTPUT, /* a row goes back: Message.request.output */
} RequestRows;

typedef struct {
    const char *name; /* "Get" */

    RequestRows rows;
    /* Bytes of such a row; NULL: there are none. */
    size_t (*row_bytes)(const RubatoTableSpec *spec);

    /* It may release what a model keeps: how long it takes depends on that. */
    bool releases;

    /* It asks nothing of a table: the server only says that it has come. */
    bool is_empty;

    /* What is wrong with the request of another node, NULL where nothing is. Its sizes are right
     * and it is of a worker of its task. NULL: nothing can be. */
    const char *(*find_fault)(const RubatoShard *shard, const RubatoRequest *request);

    /* A worker's, or the engine's between tasks; NULL: it cannot come then. In a task the model
     * gives back the request, now or later; between tasks all is done when the op returns. The
     * shard's alarm tells of memory that was not there. */
    void (*in_task)(RubatoModel *model, RubatoRequest *request);
    void (*between_tasks)(RubatoShard *shard, RubatoRequest *request);
} RequestOps;

/* NULL for kinds that are no requests to a server. */
extern const RequestOps *const request_ops[MESSAGE_N_KINDS];

/* Bytes of the row that goes with each key of a request. */
static inline size_t request_row_bytes(const RequestOps *ops, const RubatoTableSpec *spec)
{
    return ops->row_bytes == NULL ? 0 : ops->row_bytes(spec);
}

/* A find_fault: of keys that the shard does not hold. */
const char *request_find_key_fault(const RubatoShard *shard, const RubatoRequest *request);

/* The same of keys that are numbers: those of a list of n entries. */
const char *request_find_number_fault(uint64_t n, const RubatoRequest *request);

#endif
