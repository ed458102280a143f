/* What the files of an exchange share. See tensor_exchange.h.
 *
 * DESIGN NOTE
 *
 * One lock guards the matcher, or what is pending at the coordinator, and the list of operations
 * with work that nobody has taken. Each thread that waits for any request takes work from it; so
 * for blocking calls the workers themselves do it. For calls with tickets, whose workers may
 * compute meanwhile, there is a thread besides. It starts with the first of them. A thread that
 * receives does the short work that a message made possible, and all of a small operation, at once:
 * for both of them it would take longer to wake another thread. It waits for nothing. If much is on
 * its way to a node, it leaves what sends to the others, who wait for room. What takes long it
 * leaves to them, too. A small operation of blocking calls of a single node is done by the worker
 * that asked last.
 *
 * Each wait for room ends: a thread that receives always takes in what came (it copies it, or keeps
 * it, and both give room back to its sender), whatever room there is to send, and whatever other
 * threads wait for.
 *
 * The thread that has done the last work of an operation ends its requests. It takes the operation
 * out of all lists under the lock, and ends the calls without it, because a call's end may run code
 * of tickets.
 *
 * How threads wait. On one node they wait for `changed`. A thread looks under the lock whether its
 * call has ended before it sleeps; the ender wakes the sleepers under the lock after it has ended
 * the calls, if there are any (tensor_sleepers.h). So no sleeper misses its call's end. On several
 * nodes each worker waits for a call of its own (`Waiter`), because a thread that waits for a call
 * may receive meanwhile. It is armed under the lock, behind the same look. Who has work or ended
 * calls ends it under the lock. A thread that does a step wakes nobody for the short work that this
 * made possible: it goes on with it, or wakes the others when its own call has ended.
 *
 * Each wait ends: a request is decided once all workers have asked, or one of them has left, or the
 * task is cancelled; the work of an operation is done by those who wait for it, or by the thread;
 * and what comes from other nodes comes, unless they die or fail: then the task is cancelled, or
 * what they had a part in fails (tensor_exchange_losses.c).
 *
 * Threads: as each member says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_PRIVATE_H

#include <pthread.h>

#include "engine/collectives/negotiation/tensor_rounds.h"
#include "engine/collectives/negotiation/tensor_sets.h"
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange.h"
#include "engine/collectives/tensor_sleepers.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

typedef struct TensorSet TensorSet;

/* An operation from its decision to its end. */
typedef struct Operation Operation;
struct Operation {
    uint64_t number;
    TensorEntry **entries; /* by name, then by the set's workers here; NULL: it has not asked */
    uint32_t n_names;      /* more than one travel together */
    uint32_t n_entries;
    GError *error;   /* it does not run, or has failed */
    bool is_small;   /* the thread that ends it does its only chunk before */
    Operation *next; /* in a list of those that end */

    /* if it has a flow whose values are compressed */
    TensorResidual **residuals; /* by name; NULL: it has none */
    uint32_t set_id;            /* whose they were; it may have been removed, */
    uint64_t set_serial;        /* and another made with its id */

    /* for the timeline; 0: nothing was recorded then */
    uint64_t decided_ns;
    uint64_t begun_ns; /* guarded by the exchange's lock; once it ends, its thread's */

    int64_t tuned_ns; /* when it began, if cut-overs are measured */

    /* guarded by the exchange's lock */
    TensorFlow *flow;    /* with workers of other nodes; NULL: without */
    DirectRead *directs; /* of its pieces that are arriving (tensor_arrivals.c) */
    TensorWork work;     /* without */
    uint32_t next_chunk, n_done;
    uint32_t n_running; /* steps of the flow */
    bool is_ready;      /* in the list */
    GList link;
};

/* How a worker waits while other nodes take part. */
typedef struct {
    Call call;
    bool is_armed; /* guarded by lock */
} Waiter;

/* A set of workers as this node knows it. */
struct TensorSet {
    /* immutable, until workers of it are lost */
    uint32_t id;
    uint64_t serial; /* of the sets that were ever made here */
    uint32_t made;   /* it is this one of those that workers have made, from 1; set 0: 0 */
    uint32_t n;
    uint32_t *ranks;      /* rising */
    uint32_t *members_of; /* by node number: how many of them it has */
    uint32_t n_local;     /* on this node */
    uint32_t first_local; /* the first of these in ranks */

    /* guarded by lock; of nodes that are lost the above changes under it, too */
    uint32_t generation; /* losses before it got its workers */

    /* guarded by lock: what was decided in it since it has its workers, by verdicts, and by rounds
     * (tensor_asked.h) */
    uint64_t n_verdicts, n_rounds;

    /* the same; by place among those of this node */
    TensorJoin **joins;    /* NULL: it has not joined */
    TensorSlots *slots;    /* its places are these; what they hold is a TensorEntry */
    uint32_t filling;      /* the slot that the decisions of a group fill */
    uint32_t n_to_come;    /* of this group, */
    uint32_t n_of_group;   /* which has so many */
    GHashTable *residuals; /* of TensorResidual, by name; NULL: there are none */

    /* the same, on several nodes */
    GHashTable **asked; /* of TensorEntry, by name: those that are not decided */
    GArray *in_full;    /* ids of slots of which names are asked in full, or were (rounds) */
    GError *closed;     /* why nothing can be asked any more; NULL: it can */
};

/* Names that were decided one behind another, which all workers of the set have asked for: they
 * become one operation. Empty while the lock is not held. */
typedef struct {
    const TensorSet *set;
    uint64_t number;  /* of the first name */
    uint32_t n_names; /* 0: it is empty */
    uint64_t n_bytes; /* of a worker's tensors */
    size_t n_entries, n_room;
    TensorEntry **entries; /* by name, then by the set's workers here */
} Bundle;

struct TensorExchange {
    /* immutable */
    TensorPlace place;
    uint32_t n_workers, n_local;
    uint32_t first_rank; /* of this node's workers */
    const TensorLinks *links;
    void *user; /* theirs */
    TensorGatheredPool *gathered;

    Spinner *spinners; /* by local rank; each its worker's */
    Waiter *waiters;   /* the same */

    _Atomic bool is_cancelled;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* there is work, or calls have ended */
    /* Operations in `ready`; written with the lock, read without it by those who look for work
     * before they take it. Relaxed: the lock orders what they find. */
    _Atomic uint32_t n_ready;
    /* guarded by lock */
    GQueue ready;              /* of Operation: those with work that nobody has taken */
    GPtrArray *sets;           /* of TensorSet, by id; NULL: there is none */
    uint64_t n_sets_ever;      /* that were made, or changed */
    uint32_t n_made;           /* by workers */
    TensorSetChange **changes; /* by local rank; NULL: it has not asked for one */
    Bundle bundle;
    TensorSleepers asleep;
    bool is_stopping;
    bool has_thread;
    pthread_t thread; /* does the work of calls with tickets */

    /* on one node */
    TensorSets *matchers;
    GHashTable *pending; /* of TensorEntry: those that are not decided */

    /* on several nodes */
    GString *notices; /* not told to the coordinator yet */
    bool is_telling;  /* a thread tells them */
    bool *has_left;   /* by local rank */
    bool is_used;     /* a worker has asked: the coordinator knows of this node */
    uint64_t n_verdicts;
    GQueue unheard;          /* of text: messages with verdicts */
    bool is_hearing;         /* a thread hears them */
    bool is_shut;            /* nothing is agreed on any more, and nobody waits for it */
    uint32_t n_cuts;         /* verdicts on cut-overs; 0: they are fixed */
    TensorCutovers cutovers; /* that hold */
    bool wants_cutovers;     /* others are to hold: the coordinator is told with the next request */
    TensorCutovers wanted_cutovers;
    GHashTable *running; /* of Operation with a flow, by number */

    /* the same, if nodes agree in rounds */
    TensorRounds *rounds; /* NULL: they do not */
    bool is_agreeing;     /* a thread tells vectors, and does what rounds have decided */
    bool has_news;        /* that are told in no vector yet */
    bool is_hurried;      /* the answer to another node's vector is put off no longer */
    uint32_t n_told;      /* slots that are told in the round that has not ended */
    bool has_round_cut;   /* of the round that ended last */
    TensorCutovers round_cut;
    uint64_t ahead; /* the operation whose part was sent in the round that has not ended; 0: none */

    /* the same: losses of nodes with workers (tensor_exchange_losses.c) */
    bool *is_lost;     /* by node number */
    GPtrArray *losses; /* what was told of each */
    uint32_t *known;   /* by local rank: how many the worker knows of */
    uint32_t n_said;   /* how many the coordinator knows that this node has heard of */

    /* the same, on a node that returns (tensor_exchange_returns.c) */
    bool is_away;           /* it has not been told how things stand */
    uint32_t n_made_before; /* sets */

    GHashTable *early; /* of EarlyMessages, by number: of operations that are not decided here */
};

/* ---- tensor_operations.c: the lock is held, unless a function says otherwise ---- */

/* What was decided. */
typedef struct {
    const TensorSet *set;
    uint64_t number;       /* of the decision, or of the first of several */
    TensorEntry **entries; /* by name, then by the set's workers on this node (transfer full) */
    uint32_t n_names;
    const bool *asked; /* by place in the set; NULL: all have */
    GError *error;     /* it does not run; NULL: it does (transfer full) */
} Decided;

/* Begins an operation. One that ends at once is put in front of the list. NULL, or an operation
 * with a flow, which has begun. */
Operation *operation_begin(TensorExchange *exchange, const Decided *decided, Operation **ending);

/* An operation with a flow, which has begun, is found by its number from now on, until its end. */
void operation_enlist(TensorExchange *exchange, Operation *operation);

/* ---- tensor_flow_nodes.c: the lock is held ---- */

/* The nodes of a flow's plan, which point to the lists. */
typedef struct {
    TensorFlowPlan plan;
    uint32_t *nodes, *first_ranks, *n_ranks_of;
} FlowNodes;

/* Those of the set with workers that have asked, by place in it; NULL: all have. No more of the
 * plan is set than the nodes and the ranks. */
void flow_nodes_find(const TensorExchange *exchange, const TensorSet *set, const bool *asked,
                     FlowNodes *found);
void flow_nodes_clear(FlowNodes *found);

/* ---- tensor_arrivals.c: the lock is held ---- */

/* The operation ends, or nothing is to be read to its workers' arrays any more. */
void arrivals_revoke(Operation *operation);

/* A message of the node came for it: nothing more of that node is read to their arrays. False: it
 * is too late for it. Changes where its bytes are, if these are not where they belong. */
bool arrivals_take(Operation *operation, uint32_t node, TensorMessage *message);

/* ---- tensor_residuals.c: the lock is held ---- */

/* The operation gets residuals for its names. False: there is no memory. */
bool residuals_take(const TensorSet *set, Operation *operation);

/* It has succeeded: its set gets them back. */
void residuals_give_back(const TensorExchange *exchange, Operation *operation);

/* Those that it has not given back. Any thread; the lock is not needed. */
void residuals_free(Operation *operation);

/* ---- tensor_timeline.c ---- */

/* The operation's first work begins. The lock is held, or the operation ends. */
static inline void operation_time_work(const TensorExchange *exchange, Operation *operation)
{
    if (operation->begun_ns == 0)
        operation->begun_ns = timeline_now(exchange->place.timeline);
}

/* Records an operation whose work is done. It has decided_ns; its entries have not ended. The lock
 * is not held. */
void operation_note(const TensorExchange *exchange, const Operation *operation);

/* ---- tensor_fusion.c: the lock is held ---- */

/* Whether a name that all workers of the set have asked for can travel with others. */
bool fusion_suits(const TensorExchange *exchange, const TensorEntry *entry);

/* Whether it can travel with those in the bundle, which is not empty. */
bool fusion_fits(const TensorExchange *exchange, const TensorSet *set, const TensorEntry *entry);

/* Adds a name, which suits and fits, or is the first one. Takes the entries. */
void fusion_add(TensorExchange *exchange, const TensorSet *set, uint64_t number,
                TensorEntry **entries);

/* Whether all names of a slot can travel together. If so they always do, on all nodes. */
bool fusion_suits_slot(const TensorExchange *exchange, const TensorSet *set, TensorSlot *slot);

/* The same two for all of them, by name, then by the set's workers here. */
bool fusion_fits_slot(const TensorExchange *exchange, const TensorSet *set, const TensorSlot *slot);
void fusion_add_slot(TensorExchange *exchange, const TensorSet *set, uint64_t number,
                     const TensorSlot *slot, TensorEntry **entries);

/* Empties the bundle. False: it is empty. */
bool fusion_take(TensorExchange *exchange, Decided *decided);

/* The operation has work: it is in the list, and threads that wait take it. */
void operation_ready(TensorExchange *exchange, Operation *operation);

/* Takes work of an operation and does it, with the lock released meanwhile. False: there is
 * none. */
bool operation_work(TensorExchange *exchange);

/* The thread that receives does what it may do at once, with the lock released meanwhile. Nobody
 * else ends the operation meanwhile, except what it has failed for. */
void operation_work_at_once(TensorExchange *exchange, Operation *operation);

/* Fails an operation with a flow. If no thread is at it, it is put in front of the list of those
 * that end. */
void operation_fail(TensorExchange *exchange, Operation *operation, const GError *error,
                    Operation **ending);

/* Ends what is in the list. The lock is not held. */
void operations_end(TensorExchange *exchange, Operation *ending);

/* Wakes all that wait. */
void operations_wake(TensorExchange *exchange);

/* The requests of the list have failed. Frees the list. The lock is not held. */
void operations_end_entries(TensorExchange *exchange, GPtrArray *entries, const GError *error);

/* A request has ended. The lock is not held. */
void tensor_entry_end(TensorEntry *entry, const GError *error);

/* ---- tensor_exchange_sets.c: the lock is held ---- */

void exchange_sets_init(TensorExchange *exchange);
void exchange_sets_link(TensorExchange *exchange);
void exchange_sets_clear(TensorExchange *exchange);

/* NULL: there is no such set. */
TensorSet *exchange_set(const TensorExchange *exchange, uint32_t id);

void exchange_end_joins(TensorExchange *exchange, TensorSet *set, uint32_t last,
                        const GError *error);

/* What all workers have asked for was decided, and their calls end. False: it makes no sense. */
bool exchange_make_set(TensorExchange *exchange, uint32_t id);
bool exchange_remove_set(TensorExchange *exchange, uint32_t id);
void exchange_refuse_change(TensorExchange *exchange, const GError *error);

/* Of a worker; as tensor_exchange_find_set. */
bool exchange_find_member(const TensorExchange *exchange, uint32_t id, uint32_t rank,
                          TensorMember *member, GError **error);

/* The lock, if sets may change while they are looked at. It is not held. */
void exchange_lock_sets(TensorExchange *exchange);
void exchange_unlock_sets(TensorExchange *exchange);

/* The set begins anew, with the same workers. Nothing is pending in it. */
void exchange_begin_set_anew(TensorExchange *exchange, TensorSet *set);

/* A set as it is elsewhere, on a node that returns: made by workers as this one of all, with
 * workers that it got after so many losses. False: it makes no sense. */
bool exchange_tell_set(TensorExchange *exchange, uint32_t id, const uint32_t *ranks, uint32_t n,
                       uint32_t made, uint32_t generation);

/* The set is without the workers of the node, and begins anew. If it has no others it ends, and is
 * freed. Nothing is pending in it. */
void exchange_shrink_set(TensorExchange *exchange, TensorSet *set, uint32_t node);

/* Whether there is such a node, another one than this, which has workers and is not lost. */
static inline bool exchange_has_node(const TensorExchange *exchange, uint32_t node)
{
    const TensorPlace *const place = &exchange->place;

    return node < place->n_nodes && node != place->self && place->workers_of[node] > 0 &&
           !exchange->is_lost[node];
}

/* ---- tensor_exchange_losses.c: the lock is held ---- */

/* Whether the worker knows of the losses that have changed the set. Else it does from now on, by
 * this error: RUBATO_ERROR_NODE_LOST. */
bool losses_check_known(TensorExchange *exchange, uint32_t id, uint32_t rank, GError **error);

/* Whether a new set has living workers alone, or one that is to be removed is there.
 * RUBATO_ERROR_INVALID. */
bool losses_check_living(const TensorExchange *exchange, const TensorSetChange *change,
                         GError **error);

/* Verdicts have come, which may have to wait until they are heard: if they tell a loss, rounds wait
 * for that node no more. */
void losses_look_ahead(TensorExchange *exchange, const char *verdicts);

/* A node was lost, or is to be replaced. False: it makes no sense. The lock is held, but not all
 * the time. */
bool losses_hear(TensorExchange *exchange, const TensorVerdict *verdict);

/* ---- tensor_exchange_again.c: the lock is held ---- */

/* The slot with just what the worker asks now; NULL: there is none, or some of it is pending.
 * local: the worker's place among those of this node. */
TensorSlot *exchange_find_again(const TensorExchange *exchange, const TensorSet *set,
                                uint32_t local, const TensorEntry *entries, size_t n);

/* A name was decided, with these requests of all workers here, and fills a slot. False: it makes no
 * sense. */
bool exchange_fill(TensorSet *set, uint32_t id, const char *name, TensorEntry *const *entries);

/* The request for one of the slot's names, of a worker whose requests it held. */
TensorEntry *exchange_entry_of(const TensorSlot *slot, uint32_t name, uint32_t local, void *held);

/* What workers have asked again is looked up by name from now on: together with this name; all of
 * the set. Nobody is told of it. */
void exchange_look_up(TensorSet *set, const char *name);
void exchange_look_up_all(TensorSet *set);

/* Adds all that is pending in the set, which then is so no more. */
void exchange_take_pending(TensorSet *set, GPtrArray *entries);

/* The same of all its names, by name, then by worker. (transfer full) */
TensorEntry **exchange_entries_of(const TensorSlot *slot, uint32_t n_local, void *const *held);

extern const TensorRecall exchange_recall;

/* ---- tensor_exchange_returns.c: the lock is held ---- */

/* Tells the coordinator that the node is back. The lock is held, but not meanwhile. */
void returns_begin(TensorExchange *exchange);

/* The coordinator has said how things stand: one of several lines. False: it makes no sense. */
bool returns_hear(TensorExchange *exchange, const TensorVerdict *verdict);

/* ---- tensor_exchange_waits.c ---- */

/* The worker waits for the call, and has for some time: tells what it has asked for, if that is not
 * *told, which it then is (transfer full), and something of the call is not decided. The lock is
 * held, but not all the time. */
void waits_report(TensorExchange *exchange, uint32_t rank, const Call *call, char **told);

/* ---- tensor_notices.c: the lock is held ---- */

/* The coordinator learns with the first notice of those workers that left before, and with the
 * first one behind a loss that this node has heard of it. */
void notices_begin(TensorExchange *exchange);

/* Adds that cut-overs are to change, if it was found so; that a worker asks for these in full. */
void notices_add_cutovers(TensorExchange *exchange);
void notices_add_asks(TensorExchange *exchange, uint32_t rank, const TensorEntry *entries,
                      size_t n);

/* Tells what there is, unless another thread does. The lock is held, but not meanwhile. */
void notices_tell(TensorExchange *exchange);

/* ---- tensor_launch.c: the lock is held, but not while there is work ---- */

/* A name that was decided begins, or travels with those behind it. entries: of the set's workers
 * here, of which n are there (taken). asked: by place in the set; NULL: all have. error: it does
 * not run (taken). number: of the operation; 0: of the next verdict, which then counts. */
void launch_name(TensorExchange *exchange, TensorSet *set, TensorEntry **entries, uint32_t n,
                 const bool *asked, GError *error, uint64_t number);

/* The same of all names of a slot, which all workers have asked for. entries: by name, then by
 * worker (taken). */
void launch_slot(TensorExchange *exchange, TensorSet *set, TensorSlot *slot, TensorEntry **entries,
                 uint64_t number);

/* What waits for others to travel with begins. */
void launch_bundle(TensorExchange *exchange);

/* A node has sent what makes no sense: the operation fails here and on all nodes. */
void launch_fail_by_nonsense(TensorExchange *exchange, Operation *operation, uint32_t node,
                             const char *what);

/* For messages of operations that this node does not know of yet, by number. Whether there can be
 * any for that one; keeps one; drops those for which it is too late, and all. The lock is held. */
GHashTable *launch_new_early(void);
bool launch_is_early(const TensorExchange *exchange, uint64_t number);
void launch_keep_early(TensorExchange *exchange, uint32_t node, const TensorMessage *message,
                       void *owner);
void launch_drop_late(TensorExchange *exchange);
void launch_drop_all(TensorExchange *exchange);

/* Those of a node. */
void launch_drop_of_node(TensorExchange *exchange, uint32_t node);

/* ---- tensor_exchange_rounds.c: the lock is held ---- */

/* Whether what is asked again in the set goes by rounds. */
bool rounds_take(const TensorExchange *exchange, const TensorSet *set);

/* exchange_find_again, for a set that goes by rounds. NULL also if another worker here asks for
 * some of it in full: then this one does so, too. */
TensorSlot *rounds_find_again(const TensorExchange *exchange, const TensorSet *set, uint32_t local,
                              const TensorEntry *entries, size_t n);

/* A worker here asks again, and is held. */
void rounds_note_again(TensorExchange *exchange, const TensorSet *set, const TensorSlot *slot);

/* A worker asks for the name in full, by its place among those here: so do those who asked again
 * for a slot with that name. False: it is told in a round, and the worker has asked for it. */
bool rounds_let_go_of(TensorExchange *exchange, TensorSet *set, uint32_t local, const char *name);

/* All that is asked again, and not told in the round under way, is asked in full from now on: then
 * the coordinator can say who is missing. */
void rounds_ask_in_full(TensorExchange *exchange);

/* The coordinator is told of joins, once nothing is told in a round. */
void rounds_tell_joins(TensorExchange *exchange, TensorSet *set);

/* Another node's vector came. NULL, or what is wrong with it. */
const char *rounds_receive(TensorExchange *exchange, uint32_t node, const TensorMessage *message);

/* Tells this node's vector where one is due, and does what rounds decide. Leaves it if verdicts are
 * to be heard first, or another thread does it. The lock is held, but not all the time. */
void rounds_go_on(TensorExchange *exchange);

/* ---- tensor_ahead.c: the lock is held ---- */

/* A message on its way to a node. */
typedef struct {
    uint32_t node;
    void *message;
} AheadMessage;

/* A vector is told, and not sent yet: messages with what it asks for, if that is one tensor
 * (AheadMessage, by rising node number, to nodes that are not lost; to one in the order in which it
 * gets them). They are sent behind the vector. NULL: there are none. (transfer full) */
GArray *ahead_make(TensorExchange *exchange);

/* ---- tensor_negotiation.c: the lock is not held, unless a function says otherwise ---- */

/* As those of the exchange, on several nodes. */
bool negotiation_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                     GError **error);
bool negotiation_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error);
bool negotiation_change_sets(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                             GError **error);
void negotiation_leave(TensorExchange *exchange, uint32_t local);

/* What workers here ask again, others have not for long: it is asked in full. The lock is held, but
 * not all the time. */
void negotiation_ask_alone(TensorExchange *exchange);

/* Nothing can be asked any more; what is pending fails. */
void negotiation_close(TensorExchange *exchange, const GError *why);
void negotiation_clear(TensorExchange *exchange);

#endif
