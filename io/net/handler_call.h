/* The call of a handler on one part: its arguments, and its answer.
 *
 * A call within the process lies in its caller's memory; the server writes the answer there. A call
 * of another node comes as bytes (see below), and the server makes a HandlerCall of them, which
 * post_office_receive.c frees when it has sent the answer. A model that keeps a call has the
 * request itself, which is answered when the call has run, or a copy, for whose answer nobody waits
 * (models/model.c).
 *
 * As bytes: 32 of the handler's name, padded with zeros; then numbers of 8 bytes: argument bytes;
 * 1 if it is a call on all rows; how many keys it has; the first key of a run; how many bytes of
 * keys follow; its number among the calls of its worker's clock; then the keys, then the arguments.
 *
 * Threads: its present owner: the caller, the part's owner, then the caller again. */
#ifndef RUBATO_IO_NET_HANDLER_CALL_H
#define RUBATO_IO_NET_HANDLER_CALL_H

#include <rubato/handler_ops.h>

#include "io/net/message.h"

/* Who calls, for a history: set by each server that has the part. */
typedef struct {
    uint32_t epoch; /* of the task; 0: between tasks */
    uint32_t rank;  /* the worker's; between tasks the number of the caller's node */
    uint64_t clock; /* the worker's; between tasks 0 */
} HandlerCaller;

/* What comes of a call. */
typedef struct {
    char *failure; /* why the handler failed; NULL: it did not, or never ran */
    void *bytes;   /* its result */
    size_t n_bytes;
} HandlerAnswer;

typedef struct HandlerCall {
    const RubatoHandlerOps *ops;
    const void *arguments;
    size_t n_bytes;   /* of arguments */
    bool is_whole;    /* of all rows of the part, else of the request's keys */
    bool is_kept;     /* a model's copy: nobody waits for the answer */
    bool is_coming;   /* the model's op that brings it has not returned */
    bool is_parked;   /* a model keeps its request, or a copy, and answers when it has run */
    bool in_task;     /* set by the server */
    bool comes_again; /* of a part with replicas: it can be sent again until it has ended, as
                             * its caller keeps it. The part knows one that writes */
    uint64_t number;  /* which of the calls that write of its worker's clock it is, from 1 on,
                             * for a history; between tasks of its node. 0: none is kept */
    HandlerCaller by;
    uint64_t serial;           /* which call of its node it is, from 1 on; the post office's */
    size_t n_payload_bytes;    /* as bytes; the post office's */
    RubatoKeys sent_keys;      /* of a call to another node; the post office's */
    struct CallRecord *record; /* what a part with replicas remembers of it; the server's */
    HandlerAnswer answer;
} HandlerCall;

/* The most bytes of a call as bytes. */
#define HANDLER_CALL_MOST_BYTES (RUBATO_HANDLER_MOST_BYTES + 1024)

/* The most bytes of a handler's name, its end included. */
#define HANDLER_NAME_BYTES 32

static inline void handler_answer_clear(HandlerAnswer *answer)
{
    g_free(answer->failure);
    g_free(answer->bytes);
    *answer = (HandlerAnswer){ 0 };
}

/* The bytes of a call with these keys. */
size_t handler_call_size(const HandlerCall *call, const RubatoKeys *keys);
void handler_call_write(const HandlerCall *call, const RubatoKeys *keys, void *bytes);

/* Reads them. The call's arguments and the keys stay where they lie in the bytes, which are aligned
 * for keys. *name is the handler's; the call's `ops` is not set. NULL, or what is wrong. */
const char *handler_call_read(const void *bytes, size_t n, HandlerCall *call, RubatoKeys *keys,
                              const char **name);

/* A Message.end: as message_end_call, but a call whose handler failed ends with CALL_FAILED. */
void handler_call_end(Message *message);

/* Sets who makes the call that the message brings. */
static inline void handler_call_note_caller(HandlerCall *call, const Message *message)
{
    call->by = (HandlerCaller){
        .epoch = message->epoch,
        .rank = message->epoch == 0 ? message->node : message->request.worker,
        .clock = message->epoch == 0 ? 0 : message->request.clock,
    };
}

#endif
