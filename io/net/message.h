/* A message in memory: what is asked of a server, on its way from a worker or from the network.
 *
 * A message is owned by whoever holds it and is given back by message_end: the answer then goes to
 * the Call of a worker of this node, or as a reply to the node that asked.
 *
 * Threads: one owner at a time; the mailbox hands it over. */
#ifndef RUBATO_IO_NET_MESSAGE_H
#define RUBATO_IO_NET_MESSAGE_H

#include <rubato/request.h>

#include "io/net/call.h"

typedef enum {
    MESSAGE_GET = 1,  /* keys; answered with rows */
    MESSAGE_ADD,      /* keys and deltas; answered where the sender wants to know */
    MESSAGE_CLOCK,    /* source `request.worker` has come to request.clock */
    MESSAGE_ANNOUNCE, /* keys of iteration request.clock of worker request.worker */
    MESSAGE_FENCE,    /* answered when everything sent before it has been taken in */
    MESSAGE_REPLY,    /* rows, or nothing, and how it went; matched by request id */
    MESSAGE_CONTROL,  /* to or from the scheduler; the body is a GVariant */
    MESSAGE_INVOKE,   /* inside a process only: run a function as the server's owner */
} MessageKind;

#define MESSAGE_NO_TABLE UINT32_MAX

typedef struct Message Message;
struct Message {
    RubatoRequest request; /* first: models give back requests, servers find the message again */
    MessageKind kind;
    CallStatus status;   /* of the answer; CALL_NO_MEMORY before: there was none for its keys */
    bool is_answered;    /* the server's: it is on its way back */
    uint32_t epoch;      /* of the task; 0: outside any task */
    uint32_t table;      /* the table's id */
    uint32_t part;       /* of the table */
    uint32_t server;     /* its number over all nodes */
    uint32_t node;       /* the number of the node that sent it */
    uint64_t min_clock;  /* of the answer: the shard's when it read the rows */
    uint64_t node_clock; /* of a Get: its node's clock when it was asked; 0: not told */
    size_t value_bytes;  /* of what came from another node: the bytes of request.values */

    /* Whose answer it is: a call of this process, or (call NULL) a request of another node. */
    Call *call;

    /* Gives the message back with its answer: status, min_clock and, for a Get, the rows in
     * request.values. NULL: it belongs to the caller's stack and nobody waits. */
    void (*end)(Message *message);

    void (*invoke)(Message *message, void *server); /* MESSAGE_INVOKE */
};

static inline Message *message_of_request(RubatoRequest *request)
{
    return (Message *)request;
}

static inline Message *message_next(const Message *message)
{
    return (Message *)message->request.next;
}

/* Gives the message back to whoever waits for its answer. It must not be touched afterwards. */
static inline void message_end(Message *message)
{
    if (message->end != NULL)
        message->end(message);
}

/* An `end` for messages that the caller of message->call keeps until the call has ended. */
void message_end_call(Message *message);

/* A message on the heap with its own copy of the keys it selects and, for an Add, of the deltas
 * (value_bytes of each row). Its answer goes to the same call. Not for a
 * Get, whose rows must land where the caller wants them. NULL where there is no memory for keys and
 * deltas. (transfer full) */
Message *message_copy(const Message *message, size_t row_bytes);

#endif
