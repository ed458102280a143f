/* The collectives on tensors of a task's workers on this node: their requests, from the call to its
 * end.
 *
 *   worker/                 the public calls: checks, blocking or with a ticket; those for sets
 *   tensor_router.c         messages between nodes: from whom, for which task
 *   tensor_exchange.c       the workers' requests; waiting
 *   tensor_negotiation.c    what a node asks the coordinator, and what that has decided
 *   tensor_exchange_rounds.c  what nodes agree on among themselves
 *   tensor_ahead.c          what is sent before they have agreed
 *   tensor_exchange_losses.c  workers that are lost while the task goes on
 *   tensor_exchange_returns.c  a node whose workers take the place of lost ones
 *   tensor_notices.c         what the coordinator is told
 *   tensor_launch.c         what was decided begins
 *   tensor_exchange_sets.c  sets of workers on this node
 *   tensor_exchange_again.c  what its workers ask again
 *   tensor_exchange_waits.c  what a worker that waits has asked for
 *   tensor_operations.c     operations from their decision to their end: who does the work
 *   tensor_flow_nodes.c     which nodes take part in one
 *   tensor_arrivals.c       pieces that are read straight to a worker's output
 *   tensor_fusion.c         what travels together
 *   tensor_tuning.c         cut-overs that are measured, and their file
 *   tensor_residuals.c      what was cut off from compressed values
 *   tensor_timeline.c       what goes into the timeline of the node
 *   tensor_sleepers.h       whether threads sleep that have to be woken
 *   backend/                how messages cross between nodes: by our own network, by MPI
 *   flow/                   the data of one operation between nodes
 *   work/                   the work of one operation within a node: chunks, loops over values
 *   negotiation/            pure state machines and their texts:
 *     tensor_sets.c         sets of workers, each with a matcher
 *     tensor_matcher.c      which requests belong together
 *     tensor_slots.c        what workers have asked before
 *     tensor_rounds.c       what nodes agree on by bit vectors
 *     tensor_cutovers.c     which way an allreduce goes, and the tuner
 *     tensor_text.c         the lines that nodes and coordinator exchange
 *     tensor_asked.c        what a worker that waits has asked for, as a text
 *     tensor_request.c      what a worker asks: checks, comparison, words
 *
 * A lower file of this list calls none above it. If all workers of a task are on one node, their
 * requests meet in matchers there. Else the scheduler's node has the matchers
 * (engine/scheduler/tensors/scheduler_tensors.c), and nodes tell it what their workers ask. A
 * collective *call* (engine/collective.c) is something else: nodes make it together, to create a
 * table or to run a task.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_H

#include "engine/collectives/flow/tensor_flow.h"
#include "engine/collectives/tensor_tuning.h"
#include "io/net/call.h"
#include "io/net/direct_read.h"
#include "io/timeline/timeline.h"

typedef struct TensorExchange TensorExchange;

/* The ways to the other nodes. Any thread, with no lock of the exchange held. */
typedef struct {
    TensorCarrier carrier;

    /* Tells the coordinator these lines (tensor_text.h). Its verdicts may come within the call. */
    void (*tell)(void *user, const char *notices);

    /* Whether so much is on its way to the node that others than waiting threads send no more. */
    bool (*is_full)(void *user, uint32_t node);

    /* Waits until there is room to send to the node, or is_over(data). False: timeout_ms are over
     * before. */
    bool (*wait_room)(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                      int timeout_ms);

    /* For how long nothing has been heard of the node, in seconds. */
    double (*silence_s)(void *user, uint32_t node);

    /* What is lent (TensorCarrier.lend_message) is not read any more, if there is memory for
     * copies; another thread that sends at the moment may do this, a moment later. NULL: nothing
     * is ever lent. */
    void (*revoke)(void *user);

    /* Whether something that was lent is on its way to the node, which has not acknowledged it.
     * NULL, if nothing is ever lent. */
    bool (*reads_lent)(void *user, uint32_t node);

    /* Waits for the call's end, for that time at most, and may receive meanwhile. */
    void (*wait)(void *user, Call *call, int timeout_ms);

    /* Whether messages of other nodes come at any time, expected or not. */
    bool (*always_receives)(void *user);

    /* Whether messages to and from other nodes still come after one of them is lost. */
    bool (*outlives_losses)(void *user);

    /* From now on messages of other nodes are to be expected, or no more: some operation runs, or
     * none. The exchange's lock is held. Does not block. NULL: nobody has to know. */
    void (*expect)(void *user, bool expects);
} TensorLinks;

/* Where the exchange is. What it points to must outlive the exchange. */
typedef struct {
    const char *task;
    uint32_t n_nodes, self;
    const uint32_t *node_ids;   /* by node number */
    const uint32_t *workers_of; /* the same */
    uint32_t stall_ms;
    uint64_t fusion_bytes; /* of a worker's tensors that travel together, at most; 0: each alone */
    bool asks_in_full;     /* for tests: it never asks again by a slot's id (tensor_slots.h) */
    bool has_no_rounds;    /* for tests: what is asked again goes to the coordinator, too. All nodes
                            * have the same */
    bool continues;        /* after the loss of workers, without them */
    bool replaces;         /* the same, with others in their place */
    bool returns;          /* this node has such workers: tensor_exchange_come_back */
    uint32_t epoch;        /* of the task */
    Timeline *timeline;    /* NULL: there is none */
    TensorTuning *tuning;  /* of cut-overs; NULL: they are fixed, or another node has it */

    /* A worker has waited for some time for others to ask for the same, and goes on waiting: what
     * it has asked for (tensor_asked.h). May be NULL. The worker's thread, with no lock held. */
    void (*report_wait)(void *run, uint32_t rank, const char *asked);
    void *run;
} TensorPlace;

/* (transfer full) */
TensorExchange *tensor_exchange_new(const TensorPlace *place);

/* Before workers begin, if some are on other nodes. */
void tensor_exchange_link(TensorExchange *exchange, const TensorLinks *links, void *user);

/* Whether some are. Any thread. */
bool tensor_exchange_is_linked(const TensorExchange *exchange);

/* Tells the coordinator that this node has workers in the place of lost ones, and waits until it
 * has said how things stand, or the task is cancelled. Linked, and before workers begin. The thread
 * of the engine's calls. */
void tensor_exchange_come_back(TensorExchange *exchange);

/* How many sets had been made before this node's workers begin: 0, unless they have taken the place
 * of lost ones. */
uint32_t tensor_exchange_n_made_before(const TensorExchange *exchange);

/* Nothing comes any more, and no operation runs: what came for operations that never began is
 * dropped. The links are not used behind that. */
void tensor_exchange_unlink(TensorExchange *exchange);

/* No worker uses it any more, and nothing comes. NULL is allowed. */
void tensor_exchange_free(TensorExchange *exchange);

/* A worker's request. Its memory stays until the call has ended; `failure` is set before that. */
typedef struct TensorEntry TensorEntry;
struct TensorEntry {
    const char *name;
    uint32_t set;   /* of workers */
    uint32_t place; /* of the worker in it */
    TensorPart part;
    Call *call; /* has begun, with a part that the exchange ends; those of a group share it */
    GError *failure;
    bool is_async; /* the worker may not wait for it */

    /* the exchange's: where it is among those of its group */
    const TensorEntry *first;
    uint32_t n_group;
    _Atomic bool is_fetched; /* the arrays are in the cache, or will soon be */

    /* the same, for the timeline */
    uint32_t rank;
    uint64_t asked_ns; /* 0: nothing was recorded then */
};

typedef struct {
    Call call;
    uint32_t set;
    uint32_t place; /* of the worker in it */
    uint32_t last;
    GError *failure;

    /* the exchange's */
    uint32_t rank;
    bool is_told; /* to the coordinator */
} TensorJoin;

/* A worker asks for a set to be made, or removed. */
typedef struct {
    Call call;
    uint32_t *ranks;  /* of the new set, rising */
    uint32_t n_ranks; /* 0: `set` is to be removed */
    uint32_t set;     /* of a new one: written at the end */
    GError *failure;
} TensorSetChange;

/* A worker in a set. */
typedef struct {
    uint32_t n_members;
    uint32_t place; /* how many of them have lower ranks */
} TensorMember;

/* RUBATO_ERROR_INVALID: there is no such set, or the worker is not in it. A worker's thread, as all
 * of these. */
bool tensor_exchange_find_set(TensorExchange *exchange, uint32_t id, uint32_t rank,
                              TensorMember *member, GError **error);

/* The same before a call in the set. RUBATO_ERROR_NODE_LOST: others of its workers were lost, and
 * this one has not been told yet; now it is. */
bool tensor_exchange_enter_set(TensorExchange *exchange, uint32_t id, uint32_t rank,
                               TensorMember *member, GError **error);

/* The worker has got this failure of a call: if it tells of a loss, the worker knows of it. NULL is
 * allowed. */
void tensor_exchange_note_told(TensorExchange *exchange, uint32_t rank, const GError *failure);

/* 0: there is no such set. The second: writes `most` of its workers' ranks, too, rising. */
uint32_t tensor_exchange_set_size(TensorExchange *exchange, uint32_t id);
uint32_t tensor_exchange_set_ranks(TensorExchange *exchange, uint32_t id, uint32_t *ranks,
                                   uint32_t most);

uint32_t tensor_exchange_stall_ms(const TensorExchange *exchange);

/* Takes the requests in; more than one are a group, of one set. False with an error: then their
 * call does not end. The worker's thread. */
bool tensor_exchange_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                         GError **error);
bool tensor_exchange_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join,
                          GError **error);
bool tensor_exchange_change_sets(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                                 GError **error);

/* Waits until the call has ended, and does what there is to do meanwhile. The worker's thread. */
void tensor_exchange_wait(TensorExchange *exchange, uint32_t rank, Call *call);

/* What the worker has asked for, which waits for something else (tensor_asked.h). NULL: too much to
 * be told. The worker's thread, with no lock held. (transfer full) */
char *tensor_exchange_asked(TensorExchange *exchange, uint32_t rank);

/* Waits until nobody reads the worker's arrays any more, for the request, whose call has ended;
 * `failed`: by an error. The worker's thread. */
void tensor_exchange_wait_readers(TensorExchange *exchange, const TensorEntry *entry, Call *readers,
                                  bool failed);

/* A blocking call of these requests has ended; they were recorded when they were asked. */
void tensor_exchange_note_call(const TensorExchange *exchange, const TensorEntry *entries,
                               size_t n);

/* Says in the log for whom the call waits. Any thread. */
void tensor_exchange_say_stalled(TensorExchange *exchange, const Call *call, double waited_s);

/* The worker has returned. Its own thread, or that which could not start it. */
void tensor_exchange_leave(TensorExchange *exchange, uint32_t rank);

/* The task is cancelled, for this reason: what is pending or under way between nodes fails. Does
 * not block. Any thread. */
void tensor_exchange_cancel(TensorExchange *exchange, const char *why);

/* The coordinator has decided: lines of verdicts. False: they make no sense; then all that is
 * pending has failed, and nothing can be asked any more. Does not block. One thread at a time. */
bool tensor_exchange_hear(TensorExchange *exchange, const char *verdicts);

/* Some time has passed: other nodes are not kept waiting any longer for workers of this one, which
 * may ask for what theirs ask. Does not block. One thread at a time. */
void tensor_exchange_tick(TensorExchange *exchange);

/* A message came from a node; takes it over. NULL, or what is wrong: then it does not. Does not
 * block. Any thread. */
const char *tensor_exchange_receive(TensorExchange *exchange, uint32_t node,
                                    const TensorMessage *message, void *owner);

/* Such a message is arriving, of which all is there but its bytes. If these have their place with a
 * worker the direct read is started and known to the operation, until the message was received, or
 * until the other call. The thread that receives. */
bool tensor_exchange_begin_direct(TensorExchange *exchange, const TensorMessage *message,
                                  const DirectPiece *piece, DirectRead *direct);
void tensor_exchange_end_direct(TensorExchange *exchange, DirectRead *direct);

#endif
