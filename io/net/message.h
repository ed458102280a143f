/* A message in memory: what is asked of a server or told to it, on its way from a worker or from
 * the network. It is a kind, what all kinds have in common, and what this kind carries.
 *
 * A message is owned by whoever holds it and is given back by message_end: the answer then goes to
 * the Call of a worker of this node, or as a reply to the node that asked.
 *
 * A new kind of request is a line below and a row in engine/server/requests.c.
 *
 * Threads: one owner at a time; the mailbox hands it over. */
#ifndef RUBATO_IO_NET_MESSAGE_H
#define RUBATO_IO_NET_MESSAGE_H

#include <rubato/request.h>
#include <stddef.h>

#include "io/net/call.h"

typedef enum {
    MESSAGE_GET = 1, /* the rows of keys */
    MESSAGE_ADD,     /* deltas for keys */
    MESSAGE_CLOCK,   /* a source has come to a clock */
    MESSAGE_REPLY,   /* how a request went, and its output; matched by request id */
    MESSAGE_CONTROL, /* to or from the scheduler; the body is a GVariant */

    MESSAGE_ANNOUNCE,            /* the keys of an iteration of a worker */
    MESSAGE_FENCE,               /* answered when everything sent before it has been taken in */
    MESSAGE_TUNE,                /* another number for a hyper-parameter of the update rule */
    MESSAGE_SET,                 /* rows get these values, past the update rule */
    MESSAGE_RESET,               /* rows become as they were made */
    MESSAGE_GET_STATE,           /* what the update rule keeps beside rows */
    MESSAGE_SET_STATE,           /* the same, to be replaced */
    MESSAGE_COUNT_KEYS,          /* how many rows there are: one number, for which a run of one key
                                  * is asked */
    MESSAGE_LIST_KEYS,           /* the keys of the rows number keys.first and so on */
    MESSAGE_COUNT_BAD_GRADIENTS, /* how many counts of bad deltas there are, in the same way */
    MESSAGE_LIST_BAD_GRADIENTS,  /* the counts number keys.first and so on */

    MESSAGE_INVOKE, /* inside a process only: run a function as the server's owner */
} MessageKind;

enum {
    MESSAGE_N_WIRE_KINDS = MESSAGE_INVOKE, /* above all that travel between nodes */
    MESSAGE_N_KINDS,
};

#define MESSAGE_NO_TABLE UINT32_MAX

/* The clock of a source: a node's number or, where the table's model wants those, a worker's
 * rank. */
typedef struct {
    uint32_t source;
    uint64_t clock;
} MessageClock;

typedef struct Message Message;
struct Message {
    Message *next; /* belongs to whoever holds the message */

    /* what all kinds have in common */
    MessageKind kind;
    CallStatus status; /* of the answer; CALL_NO_MEMORY before: there was none for its keys */
    bool is_answered;  /* the server's: it is on its way back */
    uint32_t epoch;    /* of the task; 0: outside any task */
    uint32_t table;    /* the table's id */
    uint32_t part;     /* of the table */
    uint32_t server;   /* its number over all nodes */
    uint32_t node;     /* the number of the node that sent it */

    /* Whose answer it is: a call of this process, or (call NULL) a request of another node. */
    Call *call;

    /* Gives the message back with its answer: status, min_clock and what is in request.output.
     * NULL: it belongs to the caller's stack and nobody waits. */
    void (*end)(Message *message);

    uint64_t min_clock; /* of the answer: the shard's when it read the rows; set by the server */

    /* what a kind carries */
    union {
        /* every request that names keys, and MESSAGE_FENCE and MESSAGE_TUNE, which name none */
        struct {
            RubatoRequest request;
            size_t row_bytes;    /* of the input and the output of each key; unused without */
            size_t input_bytes;  /* of what came from another node: those of request.input */
            uint64_t node_clock; /* MESSAGE_GET: its node's when it was asked; 0: not told */
        };
        MessageClock clock;                             /* MESSAGE_CLOCK */
        void (*invoke)(Message *message, void *server); /* MESSAGE_INVOKE */
    };
};

static inline Message *message_of_request(RubatoRequest *request)
{
    return (Message *)(void *)((char *)request - offsetof(Message, request));
}

/* Gives the message back to whoever waits for its answer. It must not be touched afterwards. */
static inline void message_end(Message *message)
{
    if (message->end != NULL)
        message->end(message);
}

/* An `end` for messages that the caller of message->call keeps until the call has ended. */
void message_end_call(Message *message);

/* A request on the heap with its own copy of the keys it selects and of its input. Its answer goes
 * to the same call. Not for one with output, which must land where the caller wants it. NULL where
 * there is no memory for keys and input. (transfer full) */
Message *message_copy_request(const Message *message);

/* A MESSAGE_CLOCK on the heap that nobody waits for. (transfer full) */
Message *message_copy_clock(const Message *message);

#endif
