/* A part with replicas, as pure state machines: what its primary knows of its replicas, and what a
 * holder of the part has had. The protocol and why it is right: docs/replication.md.
 *
 * Threads: one at a time for each of the two. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_REPLICA_FEED_H
#define RUBATO_ENGINE_SERVER_REPLICAS_REPLICA_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/net/message.h"

/* ---- the primary ---- */

/* More replicas than this are not of use: each is on a node of its own. */
#define REPLICA_FEED_MOST 7

/* An answer that waits for replicas. Its owner embeds it. */
typedef struct HeldAnswer HeldAnswer;
struct HeldAnswer {
    HeldAnswer *next;
    uint64_t needs; /* the inputs that replicas must have */
};

typedef struct {
    uint32_t server; /* its number */
    uint32_t made;   /* the number of the map by which it follows this primary; 0: the table's
                      * first one */
    bool counts;     /* answers wait for it. false: it is being made */
    bool is_whole;   /* of one that is made: it knows that it counts, and can become a primary */
    bool is_told;    /* of one that is made: it is told what inputs do (shard_tells_more) */
    uint64_t has;    /* its position: inputs up to this number */
    /* until it counts: the bytes of inputs that have been passed on behind what it is known to have
     * had, and of how many nobody waits for it */
    size_t behind_bytes, most_behind_bytes;

    /* likewise, if its image goes in slices: one is under way, behind so many inputs, of which so
     * many bytes are among those above */
    bool has_slice_under_way;
    uint64_t before_slice;
    size_t before_slice_bytes;
} FedReplica;

typedef struct {
    uint64_t n_inputs; /* that the part has had; the last one has this number */
    uint32_t n_replicas;
    FedReplica replicas[REPLICA_FEED_MOST];
    HeldAnswer *held, *last_held; /* oldest first */
} ReplicaFeed;

/* A part that has had so many inputs gets its primary. */
void replica_feed_init(ReplicaFeed *feed, uint64_t n_inputs);

/* A replica which has inputs up to number `has`; the caller passes the rest on to it. False: there
 * is one on that server, or there are too many. */
bool replica_feed_add(ReplicaFeed *feed, uint32_t server, uint32_t made, uint64_t has);

/* A replica that is being made: the caller passes all later inputs on to it, and sends it what the
 * part has. No answer waits for it before its first position, unless more bytes of inputs than
 * these are under way to it. */
bool replica_feed_add_copy(ReplicaFeed *feed, uint32_t server, uint32_t made,
                           size_t most_behind_bytes);

/* A slice of its image is sent to it; it has had the slice, and with it the inputs before. The
 * second function returns the answers that need not wait any longer. */
void replica_feed_send_slice(ReplicaFeed *feed, uint32_t server);
HeldAnswer *replica_feed_hears_slice(ReplicaFeed *feed, uint32_t server, uint32_t made);

/* The replica is told from now on what inputs do (shard_tells_more), or no longer. The second
 * function returns the one that is told, or NULL: a server makes one replica at a time. */
void replica_feed_tell_more(ReplicaFeed *feed, uint32_t server, bool is_told);
const FedReplica *replica_feed_find_told(const ReplicaFeed *feed);

/* NULL: there is none of that server and map. */
const FedReplica *replica_feed_find(const ReplicaFeed *feed, uint32_t server, uint32_t made);

/* A replica that was made says that it knows that it counts. */
void replica_feed_hears_whole(ReplicaFeed *feed, uint32_t server, uint32_t made);

/* The map has this replica no more. Returns the answers that need not wait any longer. */
HeldAnswer *replica_feed_drop(ReplicaFeed *feed, uint32_t server);

/* The primary has handled another input. Returns its number, with which it goes to replicas. */
static inline uint64_t replica_feed_count(ReplicaFeed *feed)
{
    return ++feed->n_inputs;
}

/* An input of so many bytes is passed on to replica number i. */
static inline void replica_feed_note_bytes(ReplicaFeed *feed, uint32_t i, size_t n_bytes)
{
    if (!feed->replicas[i].counts)
        feed->replicas[i].behind_bytes += n_bytes;
}

/* Up to which input every replica that answers wait for has them. */
uint64_t replica_feed_safe(const ReplicaFeed *feed);

/* An answer that acknowledges or shows what the part has now. True: it waits, and the caller may
 * not touch it. False: it may leave at once. */
bool replica_feed_hold(ReplicaFeed *feed, HeldAnswer *answer);

typedef enum {
    POSITION_HEARD,  /* or it comes from a replica that is given up */
    POSITION_COUNTS, /* it is the first one of a replica that was made: now answers wait for it */
    POSITION_WRONG,  /* it makes no sense: there are not so many inputs */
} PositionVerdict;

/* A replica says its position. *released: the answers that may leave now, oldest first. */
PositionVerdict replica_feed_hears(ReplicaFeed *feed, uint32_t server, uint32_t made, uint64_t has,
                                   HeldAnswer **released);

/* All answers that wait; they are the caller's now. The second function puts some of them back, in
 * their order. */
HeldAnswer *replica_feed_take_held(ReplicaFeed *feed);
void replica_feed_put_held(ReplicaFeed *feed, HeldAnswer *held);

/* ---- a holder of the part ---- */

typedef enum {
    INPUT_NEXT,    /* to be handled */
    INPUT_HAD,     /* it was handled before: acknowledge it as if it were new */
    INPUT_MISSING, /* one before it has not come: its sender is at fault */
} InputVerdict;

/* How far a worker of a task has come with what it does in a fixed order. Each such thing has a
 * clock, and is counted among those of the part at that clock. */
typedef struct {
    uint64_t clock, n;         /* the furthest one; n 0: there was none */
    uint64_t now_clock, n_now; /* the last one of its present process. It is before the furthest one
                                * while that process repeats what another one had sent */
} InputProgress;

/* What the part has had of a sender. Calls of handlers have numbers of their own, because those of
 * workers of the part's node have one, too. The last two are of a worker of a task: its changes,
 * which are the keys of its Adds, in their order, tunings and calls, at the worker's clock; and the
 * keys that it has announced, whose clock is the iteration that uses them. They are counted apart,
 * because iterations are announced ahead of the worker's clock. */
typedef struct {
    uint64_t sequence; /* of its last input; 0: there was none */
    uint64_t call;     /* the number of its last call of a handler that writes, likewise */
    InputProgress changes, announced;
} InputSender;

/* It is part of the part's state. */
typedef struct InputSequences {
    uint32_t n_senders;
    struct CallRecords *records; /* of their calls (models/handlers/call_records.h); NULL: none */
    struct AddAnswers *answers;  /* to their Adds and Gets (add_answers.h); NULL: none */
    InputSender senders[];
} InputSequences;

/* NULL: there is no memory. (transfer full) */
InputSequences *input_sequences_new(uint32_t n_senders);

/* NULL is allowed. */
void input_sequences_free(InputSequences *sequences);

/* Whether an input of a sender is new; then it counts as handled. A sender's numbers begin with 1,
 * grow, and may leave some out. */
bool input_sequences_take(InputSequences *sequences, uint32_t sender, uint64_t sequence);

/* The same for a call of a handler that writes, by its own number. */
bool input_sequences_take_call(InputSequences *sequences, uint32_t sender, uint64_t serial);

/* n changes of a worker. Returns how many of them, from the first one on, a process before the
 * worker's present one had sent, and the part has had.
 *
 * Why each counts once. What a worker sends to a part comes in its order: one thread sends it, and
 * links and mailboxes keep the order. A replica has had a beginning of what its primary has had. So
 * what a part has had of a lost worker is a beginning of what that worker has sent to it. The
 * process in its place makes the same calls with the same keys, from a clock on whose first
 * change no part lacks an earlier one. So up to the furthest change that the part has had, it
 * repeats what is had, and no more than that. How calls are cut into messages may differ: keys
 * are counted. */
uint64_t input_sequences_advance(InputSequences *sequences, uint32_t sender, uint64_t clock,
                                 uint64_t n);

/* The same of n keys that a worker announces for an iteration; 0: it tells that it uses none, which
 * counts as one. The end of all iterations is RUBATO_CLOCK_RETIRED. A process in the place of a
 * lost one announces from the iteration on with which it begins, so not what was announced before;
 * that is over. */
uint64_t input_sequences_announce(InputSequences *sequences, uint32_t sender, uint64_t iteration,
                                  uint64_t n);

/* Another process has the worker's place, and begins to repeat. Returns the first clock at which
 * the part has had no change of the worker, nor at a later one. */
uint64_t input_sequences_return(InputSequences *sequences, uint32_t sender);

/* What to do with a numbered input that a primary passes on. */
InputVerdict replica_take(uint64_t *position, uint64_t number);

#endif
