/* A task of the simulation of collectives on tensors (test_tensor_simulation.c): what its workers
 * ask on three nodes, and what must become of it.
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_WORLD_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_WORLD_H

#include "engine/collectives/tensor_exchange_private.h"
#include "tests/support/collectives/tensor_post.h"
#include "tests/support/scheduler/scheduler_fixture.h"

enum {
    MOST_LOCAL = 3,
    MOST_RANKS = N_NODES * MOST_LOCAL,
    N_ROUNDS = 3, /* each ends with a join */
    MOST_LOSSES = 2,
    MOST_ROUNDS = N_ROUNDS + 2 * MOST_LOSSES, /* two more behind a loss */
    N_JOBS = 8,                               /* of a round */
    N_NAMES = 5,
};

typedef enum {
    FAULT_NONE,
    FAULT_RETURN,
    FAULT_DEATH,
    FAULT_MEMORY,
    FAULT_NONSENSE,
    FAULT_LOSS,     /* nodes die, and the task goes on */
    FAULT_REPLACED, /* the same, and other processes get their workers */
    N_FAULTS
} Fault;

/* What a worker asks for in one call: one tensor, or a group of two. */
typedef struct {
    Call call;
    TensorEntry entries[2];
} Asking;

/* A worker's request. */
typedef struct {
    Asking *asking; /* the first one's of the group */
    TensorEntry *entry;
    RubatoGathered gathered;
    bool is_asked, is_refused, has_ended; /* has_ended: the worker has noticed */
    bool is_void;                         /* its process has died */
} Request;

/* What all workers ask under one name. */
typedef struct {
    TensorRequest request;
    char name[16];
    uint32_t round;
    bool in_set;      /* of the round: only its workers ask */
    uint32_t odd;     /* a rank with another shape; UINT32_MAX: none */
    uint32_t n_group; /* it is asked for together with the next one: 2; it is that one: 0 */
    Request requests[MOST_RANKS];
} Job;

/* The set of workers of a round: they make it before they ask, and remove it after the join. */
typedef struct {
    uint32_t ranks[MOST_RANKS];
    uint32_t n;
    uint32_t odd; /* a rank that asks for another one first; UINT32_MAX: none */
} Members;

/* Behind a loss: what is left of the set is removed. */
typedef enum { PHASE_MAKE, PHASE_ASK, PHASE_REMOVE, PHASE_CLEAN } Phase;

/* What a worker does once it knows of a loss: it tells all others in which round it is. They go on
 * together behind the last one. */
typedef struct {
    bool is_due, is_pending;
    uint64_t told[2]; /* its rank and round */
    Call call;
    TensorEntry entry;
    RubatoGathered gathered;
    uint32_t next; /* round */
} Restart;

typedef struct {
    uint32_t rank, node;
    Phase phase;
    uint32_t round, n_asked; /* of this round */
    uint32_t quota;          /* the same: then it joins */
    TensorJoin join;
    TensorSetChange change;
    bool has_changed; /* it has asked for a change in this phase */
    bool is_joining, is_changing, is_busy, fails, has_left;
    bool begins; /* it has taken the place of a lost one */
    Restart recovery;
} Worker;

typedef struct {
    PostOffice office;
    TensorRouter *router;
    TensorExchange *exchange;            /* NULL: the task has ended here */
    GQueue to_scheduler, from_scheduler; /* of Control */
    bool is_hearing, is_receiving;
    bool is_done; /* its workers have returned; is_over: so have all */
    bool is_over;
} Node;

typedef struct {
    uint64_t seed, random;
    uint64_t n_delivered; /* messages to the scheduler */
    Fault fault;
    uint32_t epoch;
    uint32_t n_workers_of[N_NODES], n_workers;
    Node nodes[N_NODES];
    Worker workers[MOST_RANKS];
    uint32_t n_rounds;
    Job jobs[MOST_ROUNDS][N_JOBS];
    Members all[MOST_ROUNDS];         /* workers of set 0 */
    uint32_t made_after[MOST_ROUNDS]; /* so many losses */
    Members sets[MOST_ROUNDS];
    uint32_t last[MOST_ROUNDS]; /* rank that joined last; UINT32_MAX: not known */
    bool joined[MOST_ROUNDS][MOST_RANKS], unjoined[MOST_ROUNDS][MOST_RANKS]; /* by a loss */
    uint32_t n_until_fault; /* moves, or messages */
    bool is_lost[N_NODES];
    uint32_t n_lost;
    uint32_t n_recovered;    /* rounds that workers went on with behind a loss */
    uint32_t n_back;         /* workers in the place of lost ones who did so, */
    bool is_new[MOST_RANKS]; /* which these are */
    uint32_t n_mismatches;   /* of sets */
    uint64_t fusion_bytes;
    uint32_t n_together; /* operations of several names, seen under way */
    uint64_t n_moves;
    uint32_t n_hurried;   /* ticks of nodes for which others waited */
    uint32_t n_by_rounds; /* operations that nodes have agreed on, seen under way */
    uint32_t n_ahead;     /* those of which values were sent before, seen then */
    bool has_no_rounds;
    bool has_cuts;    /* cut-overs change */
    uint32_t n_again; /* messages with decisions on what was asked again */
    uint32_t depth;
} World;

/* Whether something happens that happens once in so many times. */
bool tensor_world_chance(World *world, uint32_t one_of);

/* Whether the task goes on when nodes die. */
bool tensor_world_goes_on(const World *world);

/* The value at a place of a worker's input. */
uint64_t tensor_world_value(const World *world, uint32_t rank, uint64_t i);

/* How many workers ask for it, who they are, and which of them the worker is; UINT32_MAX: none. */
uint32_t tensor_world_n_members(const World *world, const Job *job);
uint32_t tensor_world_member(const World *world, const Job *job, uint32_t place);
uint32_t tensor_world_place(const World *world, const Job *job, uint32_t rank);

/* Each request has ended as it must: with the right values, or an error that fits the fault. */
void tensor_world_judge(const World *world);

#endif
