/* A message in memory: a request to a server, or news for it, from a worker or from the network. It
 * has a kind, members that all kinds share, and members of its kind.
 *
 * A message has one owner at a time, who gives it back by message_end. The answer then goes to the
 * Call of a worker of this node, or as a reply to the node that asked.
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
    MESSAGE_CLOCK,   /* a source has reached a clock */
    MESSAGE_REPLY,   /* how a request went, and its output; matched by request id */
    MESSAGE_CONTROL, /* to or from the scheduler: see engine/control/control.h */

    MESSAGE_ANNOUNCE,            /* the keys of an iteration of a worker */
    MESSAGE_FENCE,               /* answered when everything sent before it has been handled; of a
                                  * task and a part, with the part's min clock */
    MESSAGE_TUNE,                /* another number for a hyper-parameter of the update rule */
    MESSAGE_SET,                 /* rows get these values, without the update rule */
    MESSAGE_RESET,               /* rows get their initial values */
    MESSAGE_GET_STATE,           /* reads the update rule's state beside rows */
    MESSAGE_SET_STATE,           /* replaces that state */
    MESSAGE_COUNT_KEYS,          /* how many rows there are: one number, for which a run of one key
                                  * is asked */
    MESSAGE_LIST_KEYS,           /* the keys of the rows number keys.first and so on */
    MESSAGE_COUNT_BAD_GRADIENTS, /* how many counts of bad deltas there are, likewise */
    MESSAGE_LIST_BAD_GRADIENTS,  /* the counts number keys.first and so on */
    MESSAGE_SET_BAD_GRADIENTS,   /* of a part that moves: its counts number keys.first and so on */
    MESSAGE_SET_CLOCKS,          /* of a part that moves: the clocks of sources keys.first and so
                                  * on */

    MESSAGE_ADD_GET, /* deltas for keys, then the rows: an Add and a Get of one worker in one */
    MESSAGE_HANDLER, /* calls a handler; from another node, bytes of such a call */

    MESSAGE_SERVICE, /* a piece of a request to a service, or of its answer: engine/services/ */

    /* between the servers of a part with replicas: engine/server/replicas/server_feed.c */
    MESSAGE_FEED,     /* an input of the part, from its primary to a replica */
    MESSAGE_POSITION, /* from a replica: up to which input it has them */

    /* of a part of a table with max_bytes, or whose rows expire, that moves */
    MESSAGE_SET_USES,  /* the counts of its rows' uses: one entry, number 0 */
    MESSAGE_SET_MARKS, /* when rows were used */
    MESSAGE_REMOVE,    /* these rows have left it, if they had been sent before */

    /* of a part of a table that does not admit all keys, and moves */
    MESSAGE_SET_ADMISSION, /* words number keys.first and so on of what it answers from */

    MESSAGE_TENSOR, /* a piece of a tensor, between workers' nodes: engine/collectives/flow/ */

    MESSAGE_RETURN, /* the process of a worker has the place of a lost one, and will make changes of
                     * a part with replicas again. A ReturnAnswer is asked for, as if for a run of
                     * one key */

    /* inside a process only */
    MESSAGE_INVOKE,  /* run a function as the server's owner */
    MESSAGE_ITERATE, /* a worker's next iteration: its keys are announced, the worker has reached
                      * its clock, and gets the rows */
} MessageKind;

enum {
    MESSAGE_N_WIRE_KINDS = MESSAGE_INVOKE, /* above all kinds that are sent between nodes */
    MESSAGE_N_KINDS = MESSAGE_ITERATE + 1,
};

#define MESSAGE_NO_TABLE UINT32_MAX

/* Inputs that are no messages. FEED_END: the task has ended. FEED_LOSS: workers of the task are
 * lost with their node, whose number is the request's worker; the upper half of its clock is the
 * first one's rank, the lower half how many there are. The input of a clock is a MESSAGE_CLOCK,
 * whose request names the source as its worker. */
#define FEED_END 0
#define FEED_LOSS 255

/* The process of a worker has the place of a lost one: the request's worker, as of
 * MESSAGE_RETURN. */
#define FEED_RETURN 247

/* How far a part has had a lost worker. On the wire as in memory. */
typedef struct {
    uint64_t clock;     /* that of the worker, or of its node, of which the part has heard */
    uint64_t had_until; /* the part has had changes of the worker at lower clocks alone; 0: none */
} ReturnAnswer;

/* The last input of a primary that is to be replaced: a new one goes on behind it. */
#define FEED_LAST 248

/* What a primary has done by itself, for replicas that would not do the same. FEED_EVICTED: rows
 * that the next input evicts there, of 16 bytes each (models/shard/shard_roles.h, ShardEviction).
 * FEED_CREATED: keys, as numbers, of rows that a Get creates. FEED_TIME: the time of a table that
 * counts seconds, as the request's clock. */
#define FEED_EVICTED 246
#define FEED_CREATED 245
#define FEED_TIME 244

/* What makes a replica, and has no number: it goes to that replica alone. The clock of those with a
 * map is the number of the map by which it is made. FEED_COPY: its image begins, as of input
 * `number`; with a map. FEED_TASK: a task has begun, with as many workers as the request's worker
 * says; for each node, the number of its workers. FEED_HAD: the last sequence numbers of senders
 * number keys.first and so on. FEED_SLICED: a slice of rows ends, and the replica is to say so;
 * with a map. FEED_COPIED: the image ends; with a map. FEED_WHOLE: answers wait for it from here
 * on. FEED_GIVEN_UP: there was no memory to send the image; with a map. FEED_MADE: which rows the
 * next input makes, as places of 8 bytes (models/shard/shard_made.c). FEED_FAILS: a request of the
 * next input that fails: a FedFailure and the reason, as bytes (models/shard/shard_failures.c).
 * FEED_WORDS: words of what admits keys that the next input changes, of 16 bytes each
 * (models/shard/shard_roles.h, ShardWord). */
#define FEED_COPY 254
#define FEED_TASK 253
#define FEED_HAD 252
#define FEED_COPIED 251
#define FEED_WHOLE 250
#define FEED_GIVEN_UP 249
#define FEED_SLICED 242
#define FEED_MADE 241
#define FEED_FAILS 240
#define FEED_WORDS 239

/* A ShardFailure without its reason. On the wire as in memory. */
typedef struct {
    uint64_t write, n_rows;
} FedFailure;

/* Likewise: a call of a handler that has come, and has not run or has failed: of the request's
 * worker, with the call's number as its sequence (engine/server/replicas/server_calls.c). The
 * pieces of one that has not run follow. */
#define FEED_CALLED 243

/* Likewise: the rows with which an Add and Get of the request's worker has been answered, as bytes,
 * with its sequence and clock; the first key is its place (add_answers.h). As the input of such a
 * request, an Add whose kind is MESSAGE_ADD_GET is one after which the replica keeps the same
 * rows. */
#define FEED_ANSWERED 238

/* The number of a MESSAGE_POSITION of a replica that cannot be made. */
#define POSITION_GIVEN_UP UINT64_MAX

/* Those of one that has had FEED_WHOLE, or FEED_SLICED and so all that was sent before. They tell
 * no position. */
#define POSITION_WHOLE (POSITION_GIVEN_UP - 1)
#define POSITION_SLICED (POSITION_WHOLE - 1)

/* The clock of a source: a node's number, or a worker's rank if the table's model uses ranks. Or
 * the common clock: every node has reached it. */
#define MESSAGE_CLOCK_OF_ALL UINT32_MAX
typedef struct {
    uint32_t source;
    uint32_t map; /* the number of the part map by which it was told */
    uint64_t clock;
} MessageClock;

typedef struct Message Message;
struct Message {
    Message *next; /* for the message's owner */

    /* members of all kinds */
    MessageKind kind;
    CallStatus status; /* of the answer; CALL_NO_MEMORY in a request: no memory for its keys */
    bool is_answered;  /* the server's: its answer is on the way back */
    bool is_packed;    /* its input lies behind its list of keys: see message_packed */
    bool is_high;      /* of high priority: see io/net/priority_order.h */
    uint8_t fed_kind;  /* MESSAGE_FEED: the MessageKind of the input; or FEED_… */
    uint32_t epoch;    /* of the task; 0: outside any task */
    uint32_t table;    /* the table's id */
    uint32_t part;     /* of the table */
    uint32_t server;   /* its number over all nodes */
    uint32_t node;     /* the number of the node that sent it */

    /* The receiver of the answer: a call of this process or, if NULL, the node that asked. */
    Call *call;

    /* Gives the message back with its answer: status, min_clock and the rows in request.output.
     * NULL: the message is on the caller's stack and no call waits. */
    void (*end)(Message *message);

    union {
        uint64_t min_clock; /* of the answer: the shard's when it read the rows; set by the
                             * server */
        uint64_t follows;   /* before that, the actor's: see io/net/priority_order.h */
    };

    /* what a kind carries */
    union {
        /* every request with keys, and MESSAGE_FENCE and MESSAGE_TUNE, which have none */
        struct {
            RubatoRequest request;
            size_t row_bytes;   /* of the input and the output of each key; else unused */
            size_t input_bytes; /* of another node's request: bytes of request.input */
            uint64_t sequence;  /* likewise: it grows with each request that a worker sends, and
                                 * is the same when the request is sent again; 0: nobody waits for
                                 * the answer. MESSAGE_FEED: of the input, 0 if it has none */
            union {
                uint64_t node_clock; /* MESSAGE_GET, MESSAGE_ADD_GET: its node's clock when it was
                                      * sent; 0: not told */
                uint64_t number;     /* MESSAGE_FEED, MESSAGE_POSITION: of the input, among those
                                      * of its part */
            };
        };
        MessageClock clock;                             /* MESSAGE_CLOCK */
        void (*invoke)(Message *message, void *server); /* MESSAGE_INVOKE */
    };
};

/* n of the keys, from number `begin` on. */
static inline RubatoKeys message_keys_from(const RubatoKeys *keys, size_t begin, size_t n)
{
    RubatoKeys part = *keys;

    part.n = n;
    if (keys->at != NULL)
        part.at += begin;
    else if (keys->keys != NULL)
        part.keys += begin;
    else
        part.first += begin;
    return part;
}

/* Where keys and input lie one behind the other as on the wire, and nothing else, with the bytes
 * that pad them; NULL: they do not. Of a part of a packed message they do not, because its keys end
 * before the input of the whole begins, or its input begins later. */
static inline const void *message_packed(const Message *message, const RubatoKeys *keys,
                                         const char *input)
{
    return message->is_packed && keys->keys != NULL && keys->at == NULL &&
                   input == (const char *)(keys->keys + keys->n)
               ? keys->keys
               : NULL;
}

static inline Message *message_of_request(RubatoRequest *request)
{
    return (Message *)(void *)((char *)request - offsetof(Message, request));
}

/* How much a request is: its keys, or what comes with them. */
static inline size_t message_n_values(const Message *message)
{
    const size_t n_input = message->input_bytes / sizeof(double);

    return message->request.keys.n > n_input ? message->request.keys.n : n_input;
}

/* How long it takes about to handle a request of so many rows whose lines are in another
 * processor's cache, each alone if they are not a run. */
static inline uint64_t message_rows_ns(const RubatoKeys *keys, size_t row_bytes)
{
    return keys->n * ((keys->keys == NULL ? 0 : 20) + row_bytes / 4);
}

/* Whether a request brings its node's clock. In other kinds, something else is in its place. */
static inline bool message_brings_clock(const Message *message)
{
    return (message->kind == MESSAGE_GET || message->kind == MESSAGE_ADD_GET) &&
           message->node_clock > 0;
}

/* Gives the message back to the call or node that waits for its answer. It must not be touched
 * afterwards. */
static inline void message_end(Message *message)
{
    if (message->end != NULL)
        message->end(message);
}

/* An `end` for messages that the caller of message->call keeps until the call has ended. */
void message_end_call(Message *message);

/* Whether its end stays in this process: nobody waits for it, or a call does. */
static inline bool message_ends_here(const Message *message)
{
    return message->end == NULL || message->end == message_end_call;
}

/* A request on the heap with its own copy of the keys it selects and of its input. Its answer goes
 * to the same call. Not for a request with output, which must be written to the caller's memory.
 * NULL if there is no memory for keys and input. (transfer full) */
Message *message_copy_request(const Message *message);

/* A MESSAGE_CLOCK on the heap for which no call waits. (transfer full) */
Message *message_copy_clock(const Message *message);

#endif
