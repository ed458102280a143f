/* A simulated cluster from inside: what its files share.
 *
 *   sim_cluster.c         its nodes, and the run from begin to end
 *   sim_cluster_faults.c  faults of the network and of nodes: when they begin and end
 *   sim_cluster_judge.c   whether each node has ended as it must
 *   sim_newcomers.c       processes that take the places of killed ones
 *   sim_replicas.c        whether replicas are what their primaries are
 *   sim_cuts.c            cuts of tables while tasks run
 *   sim_kept.c            workers whose place in the training data is in these cuts
 *   sim_services.c        requests of nodes to each other's services
 *
 * Threads: all run on one, as fibers. */
#ifndef TESTS_SUPPORT_SIM_SIM_CLUSTER_PRIVATE_H
#define TESTS_SUPPORT_SIM_SIM_CLUSTER_PRIVATE_H

#include "engine/snapshot/snapshot_cut.h"
#include "tests/support/sim/sim_cluster.h"

#define SIM_KEPT_ROWS 192 /* of the split that cuts keep */

typedef struct SimCluster SimCluster;

/* A process. The simulation, and its network, know it by its number: those that take the places of
 * killed ones come after the nodes. */
typedef struct {
    SimCluster *cluster;
    uint32_t number;
    uint32_t place;       /* the node's number in the cluster */
    bool is_planned;      /* it will take the place */
    RubatoEngine *engine; /* set while others may use it */
    bool is_used;         /* another thread uses it */
    bool compares;        /* its main thread looks into the engines of all nodes */
    uint64_t rows_digest; /* of an exact program */
    bool has_joined;      /* it has had an engine */
    bool has_ended, was_killed;
    int64_t failed_ms;
    int64_t silence_ms;    /* the longest to or from the scheduler, when it failed */
    int64_t outage_ms;     /* the longest between any two nodes, when it failed */
    int64_t round_trip_ms; /* the same */
    uint64_t n_cuts;       /* for which it has called */
    GError *error;         /* of the tasks */
    GError *error_beside;  /* of the task beside them */
    GError *error_again;   /* of the task after one that failed */
} SimNode;

/* What the nodes have read of the images of a cut. */
typedef struct {
    int64_t *rows[SIM_MOST_TABLES]; /* NULL: nothing yet */
    uint64_t clocks[SIM_MOST_TABLES];
    uint64_t seed;            /* of the cut, the same on all nodes */
    uint64_t n_done, n_whole; /* cuts that have been looked at; since the loss of a node */
    uint64_t n_went_on;       /* times that workers ended iterations while a node prepared one */
} SimCut;

struct SimCluster {
    const SimScenario *scenario;
    SimScenario plain;  /* the scenario without the task beside it */
    SimScenario beside; /* the task beside it */
    SimScenario again;  /* the task after one that failed */
    SimJob job, job_beside, job_again;
    SimStreamJob stream;
    SimCut cut;
    uint32_t n_tried[SIM_KEPT_ROWS]; /* how often workers that may be lost have added the row */
    int64_t progress_ns; /* when a worker last ended an iteration, or a node last made progress */
    char *path;          /* of the cluster file */
    SimNode nodes[SIM_MOST_NODES];
    uint32_t n_living;
    int64_t begun_ms, killed_ms;
    bool is_drained, has_kept; /* the node that was to be drained; it has kept its parts */
    bool knows_loss;           /* the scheduler knows that the first node is lost */
    bool has_planned_kills;    /* those at the beginning of a task */
    bool killed_early;         /* before the run had begun everywhere: it may have failed */
};

/* Sets the time at which each fault of the scenario begins and ends. */
void sim_cluster_plan_faults(SimCluster *cluster);

/* A node is about to begin that task of its program. If it is the first one, and nodes are killed
 * then, plans that. */
void sim_cluster_plan_kills(SimCluster *cluster, uint32_t task);

/* Starts the main thread of a process. */
void sim_cluster_start(SimCluster *cluster, uint32_t number);

/* Nothing of the process runs any more, and nothing that it sent arrives. */
void sim_cluster_kill(SimCluster *cluster, uint32_t number);

/* Processes that there are, or will be. */
static inline uint32_t sim_cluster_n_processes(const SimCluster *cluster)
{
    return cluster->scenario->n_nodes + cluster->scenario->n_newcomers;
}

static inline bool sim_cluster_is_newcomer(const SimNode *node)
{
    return node->number >= node->cluster->scenario->n_nodes;
}

/* ---- sim_newcomers.c ---- */

/* A process of the node was killed: plans the start of the next one, if there is to be one. */
void sim_newcomers_plan(SimCluster *cluster, uint32_t place);

/* Whether a process was refused because the scheduler does not know yet that its node is lost. Then
 * whoever starts processes starts it again. */
bool sim_newcomer_came_too_early(const SimNode *node);

/* Cuts tables, as every node does, and reads their images: fails the seed if together they are no
 * cut. job: whose tables they are, in its order; NULL: their rows are only read. */
bool sim_cut_take(SimNode *node, const SimJob *job, const char *const *names, GError **error);

/* What a node does for cuts that workers ask for. */
CutWork sim_cut_work(SimNode *node);

/* ---- sim_kept.c ---- */

#define SIM_KEPT_TABLE "kept"

/* Runs a task, with what happens meanwhile. */
typedef bool SimKeptTask(SimNode *node, const RubatoTask *task, GError **error);

RubatoTableSpec sim_kept_table(const SimScenario *scenario);

/* What a node does: the table, the task, and a look at the rows. */
bool sim_kept_run(SimNode *node, SimKeptTask *run_task, GError **error);

/* The scheduler's node, before another cut begins: fails the seed if the rows of the table in this
 * one are not those that the reader has as done. */
void sim_kept_judge(const SimNode *node, RubatoEngine *engine, const int64_t *rows);

/* Serves what the other nodes ask for; and asks them, after a task. Nothing, if the scenario has no
 * services. */
bool sim_services_begin(SimNode *node, GError **error);
bool sim_services_ask(SimNode *node, uint32_t round, GError **error);

/* When all nodes have read all rows of the table, after which nothing has changed them: fails the
 * seed if a replica differs from its primary. Each node calls it. Nothing, if there are no
 * replicas. */
bool sim_replicas_compare(const SimNode *node, const char *name, GError **error);

/* The same when this node knows that a task on the table has ended well, before anything is
 * read. */
void sim_replicas_have_all(const SimNode *node, const char *name);

/* Whether each part of each table has its replicas, or as many as there are other nodes that live
 * and have servers, and the scheduler knows of all that were killed. */
bool sim_replicas_are_restored(const SimCluster *cluster);

/* Fails the seed if a server of the node has a part or a replica. */
void sim_replicas_check_drained(const SimCluster *cluster, uint32_t node);

/* Whether a node compares. No engine is freed meanwhile. */
bool sim_replicas_are_compared(const SimCluster *cluster);

/* The inputs that the primaries of a table's parts have had. */
#define SIM_MOST_PARTS 16
typedef struct {
    uint64_t of_part[SIM_MOST_PARTS];
} SimInputs;

/* Right before a node reads all rows of a table, and right after: fails the seed if a replica has
 * not had the inputs that its primary had had before. */
void sim_replicas_before_read(const SimNode *node, const char *name, SimInputs *inputs);
void sim_replicas_after_read(const SimNode *node, const char *name, const SimInputs *inputs);

/* Fails the seed if a node has ended as it must not; otherwise counts how they have ended. */
void sim_cluster_judge(const SimCluster *cluster, SimOutcome *outcome);

/* ---- sim_ragged.c: a node's main thread, between tasks ---- */

/* Makes a table of ragged rows, and its rows: a collective call. */
bool sim_ragged_create(SimNode *node, const SimScenario *scenario, const SimTable *table,
                       GError **error);

/* Reads all rows. */
bool sim_ragged_read(SimNode *node, const SimScenario *scenario, const SimTable *table,
                     int64_t *rows, GError **error);

#endif
