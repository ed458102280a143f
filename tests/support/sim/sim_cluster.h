/* A simulated cluster: whole engines, one for each node. Their workers run random programs while
 * the network and the nodes fail by a plan.
 *
 * First safety: each Get, and the tables at the end, are compared with sim_history.h. Then
 * liveness: after the faults there is progress within each SIM_PATIENCE_MS until everything has
 * ended. And no node may have been called lost if it was heard in time.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_SIM_SIM_CLUSTER_H
#define TESTS_SUPPORT_SIM_SIM_CLUSTER_H

#include "io/net/flow_sizes.h"
#include "tests/support/sim/sim_history.h"
#include "tests/support/sim/sim_network.h"

#define SIM_PATIENCE_MS 60000
#define SIM_MOST_WORKERS 8
#define SIM_MOST_TABLES 2
#define SIM_MOST_FAULTS 12
#define SIM_MOST_NEWCOMERS 4
#define SIM_ALL_NODES UINT32_MAX
#define SIM_SLOW_WORKER 10 /* it computes so many times as long as the others */

typedef enum {
    SIM_HANDLE_KV,
    SIM_HANDLE_KV_CLIENT,
    SIM_HANDLE_CHUNK,
    SIM_HANDLE_SPARSE,
    SIM_HANDLE_RAGGED, /* rows of different lengths, which have as many values as others here */
} SimHandle;

typedef struct {
    char name[8];
    SimModel model;
    SimHandle handle;
    uint32_t staleness, speculation;
    uint64_t max_kept_bytes;
    bool is_hash;
    const char *partition, *record;
    RubatoCache cache;
    RubatoKey first_key;
    uint32_t n_keys, most_keys; /* of the table; of a call */
    uint32_t chunk_size;
    uint32_t parts;
    bool is_plain; /* it has no replicas, whatever the others have */
} SimTable;

typedef enum {
    SIM_FAULT_LOSS,
    SIM_FAULT_DOUBLING,
    SIM_FAULT_DISORDER,
    SIM_FAULT_SLOW,
    SIM_FAULT_CUT,
    SIM_FAULT_RESET,
    SIM_FAULT_STOP, /* no thread of the node runs */
    SIM_FAULT_KILL, /* nor ever again; nothing that it sent arrives any more */
} SimFaultKind;

typedef struct {
    SimFaultKind kind;
    int64_t at_ms, for_ms;
    uint32_t from, to;  /* SIM_ALL_NODES; the node is `from` */
    uint32_t how_often; /* of 1,024 */
} SimFault;

/* A process that takes the place of a node whose process was killed. */
typedef struct {
    uint32_t node;
    int64_t after_ms;        /* the kill it is started */
    int64_t killed_after_ms; /* its start it is killed; 0: it is not */
} SimNewcomer;

typedef struct {
    uint64_t seed;
    SimOptions options;
    SimNetworkOptions network;
    FlowSizes sizes;
    uint32_t n_nodes, scheduler;
    uint32_t servers[SIM_MOST_NODES], workers[SIM_MOST_NODES];
    uint32_t n_workers, n_servers;
    uint32_t heartbeat_ms, timeout_ms;
    SimTable tables[SIM_MOST_TABLES];
    uint32_t n_tables, n_tasks, n_iterations;
    bool has_task_beside;    /* the second table is used by a task beside the others */
    int64_t think_ns;        /* of a worker in an iteration, at most */
    uint32_t slow_worker;    /* UINT32_MAX: none */
    uint32_t barrier_1024;   /* how often an iteration begins with one */
    uint32_t failing_worker; /* UINT32_MAX: none; in its last task */
    uint32_t failing_iteration;
    int64_t cancelled_ms;     /* -1: by nobody */
    uint32_t n_replicas;      /* of each part; then only parts of plain tables move */
    uint32_t n_moves;         /* of parts, in each task */
    int64_t between_moves_ns; /* at most */
    bool asks_services;       /* after each task */
    int64_t drain_ns;         /* after the first task has begun, a node is drained; 0: none */
    uint32_t drained;
    bool ends_drained;   /* it is killed after that; else at any time, if at all */
    bool outlives;       /* a node that is killed while a task runs ends nothing */
    bool continues;      /* the tasks go on without the workers of a lost node */
    uint32_t replace_ms; /* not 0: or wait for so long for a process that has them again */
    SimNewcomer newcomers[SIM_MOST_NEWCOMERS]; /* of the same node: in this order */
    uint32_t n_newcomers;
    bool restores; /* the second node is killed once replicas are there in the place of lost ones */
    uint32_t at_task; /* not 0: faults are kills, and their times count from when the first node */
    int64_t at_task_ns[2]; /* begins this task */
    int64_t after_loss_ns; /* it is killed so long after the loss of the first is known; 0: not */
    SimFault faults[SIM_MOST_FAULTS];
    uint32_t n_faults;
    int64_t heals_ms; /* there are no faults from then on */

    /* Not 0: instead of the tables and programs above, those of sim_exact.c, which follow from
     * this. */
    uint64_t exact_program;

    bool keeps_rows; /* instead of these, the program of sim_kept.c */

    /* Instead of these, the programs of sim_priority.c: a stream of requests of this priority. */
    bool streams;
    RubatoPriority stream;
} SimScenario;

/* The scenario of a seed. */
void sim_scenario_draw(SimScenario *scenario, uint64_t seed);

/* Whether Gets of the table create rows. */
static inline bool sim_table_creates(const SimScenario *scenario, const SimTable *table)
{
    return table->is_hash && scenario->n_replicas > 0 && scenario->seed % 2 == 1;
}

/* Whether the table admits keys, although each: so replicas that are made are told which rows
 * inputs make. Its workers also add to keys that nobody reads, from SIM_UNREAD_KEY on. */
static inline bool sim_table_admits(const SimScenario *scenario, const SimTable *table)
{
    return table->is_hash && scenario->n_replicas > 0 && !table->is_plain &&
           !sim_table_creates(scenario, table);
}

/* Whether rows of the table may expire, although none lives long enough. */
static inline bool sim_table_expires(const SimScenario *scenario, const SimTable *table)
{
    return table->is_hash && scenario->n_replicas == 0 && scenario->seed % 2 == 1;
}

#define SIM_UNREAD_KEY (UINT64_C(1) << 40)
#define SIM_UNREAD_KEYS 1000

/* So few of these keys have lists in a table of ragged rows, so that values are often appended to
 * one that is there. */
#define SIM_UNREAD_LISTS 30

/* The cluster and the tables of a seed. Its only fault: one node hears nothing from the
 * scheduler's node for three timeouts. */
void sim_scenario_draw_deaf(SimScenario *scenario, uint64_t seed);

/* The cluster and the tables of a seed, with at least three nodes, whose clocks go by way of the
 * root, the scheduler's node. Its only fault: that node is killed while workers use the tables. */
void sim_scenario_draw_rootless(SimScenario *scenario, uint64_t seed);

/* The cluster and the tables of a seed. For three timeouts all links are slow: a packet takes up to
 * 1.3 timeouts, and others overtake it. Meanwhile connections are reset. */
void sim_scenario_draw_slow(SimScenario *scenario, uint64_t seed);

/* A cluster whose tables have a replica of each part. Its only fault: a node without workers is
 * killed, perhaps while the workers of others use its servers. */
void sim_scenario_draw_loss(SimScenario *scenario, uint64_t seed);

/* The same with four nodes, of which two without workers are killed, and two replicas. */
void sim_scenario_draw_losses(SimScenario *scenario, uint64_t seed);

/* The same with one replica; the second node is killed when each part has a replica again, and both
 * have workers in a third of the seeds. */
void sim_scenario_draw_restored(SimScenario *scenario, uint64_t seed);

/* The same with one replica or two; the second node is killed soon after the loss of the first is
 * known, perhaps while replicas are made in the place of lost ones. */
void sim_scenario_draw_overlap(SimScenario *scenario, uint64_t seed);

/* A node of four is drained while tasks run. It is killed after that; or it, or another one, at any
 * time; or none is. */
void sim_scenario_draw_drain(SimScenario *scenario, uint64_t seed);

/* The same with one replica, and a table without replicas, whose parts move meanwhile, to the node
 * that is killed and from there, too. They are not there in the beginning. */
void sim_scenario_draw_moves(SimScenario *scenario, uint64_t seed);

/* A node is lost, or sometimes two of them, and has workers, without which the tasks go on. */
void sim_scenario_draw_worker_loss(SimScenario *scenario, uint64_t seed);

/* A node, or two, are killed while a task begins. They have no workers, in half of the seeds; or
 * the tasks go on without these, or wait for processes in their places. */
void sim_scenario_draw_start(SimScenario *scenario, uint64_t seed);

/* A node of four is lost, with workers, or two of them are, in a third of the seeds. The tasks wait
 * for processes in their places, which may be lost, too, or do not come in time. Meanwhile links
 * fail in a third of the seeds, and a node is drained in a quarter. */
void sim_scenario_draw_replaced(SimScenario *scenario, uint64_t seed);

/* The cluster and the faults of a seed, except those that end a task, with an exact program. */
void sim_scenario_draw_exact(SimScenario *scenario, uint64_t seed, uint64_t program);

/* The same with a replica of each part, and the loss of a node without workers. */
void sim_scenario_draw_exact_loss(SimScenario *scenario, uint64_t seed, uint64_t program);

/* The same with four nodes, of which two are killed, the second one once each part has a replica
 * again. */
void sim_scenario_draw_exact_restored(SimScenario *scenario, uint64_t seed, uint64_t program);

/* One node of four is killed, with workers, and another process has them again. */
void sim_scenario_draw_exact_replaced(SimScenario *scenario, uint64_t seed, uint64_t program);

/* A node is drained meanwhile, and none is lost. */
void sim_scenario_draw_exact_drain(SimScenario *scenario, uint64_t seed, uint64_t program);

/* The cluster and the faults of a seed, except those that end a task; its workers read a split that
 * cuts keep (sim_kept.c). */
void sim_scenario_draw_kept(SimScenario *scenario, uint64_t seed);

/* The same, and a node with workers is lost: others have them again, or the task goes on without
 * them. */
void sim_scenario_draw_kept_loss(SimScenario *scenario, uint64_t seed);

/* One of the clusters above, by the seed, whose tables have ragged rows. */
void sim_scenario_draw_ragged(SimScenario *scenario, uint64_t seed);

/* A cluster for sim_priority.c: two or three nodes without faults. */
void sim_scenario_draw_stream(SimScenario *scenario, uint64_t seed, RubatoPriority priority);

/* So many nodes, each with a server and a worker, and no faults. */
void sim_scenario_draw_large(SimScenario *scenario, uint32_t n_nodes);

/* (transfer full) */
char *sim_scenario_describe(const SimScenario *scenario);

typedef struct {
    uint64_t digest, n_turns;
    int64_t simulated_ns;
    uint32_t n_ended_well, n_lost, n_failed, n_cancelled; /* nodes, those killed left out */
    SimNetworkStats network;
    int64_t silence_ms, outage_ms; /* the longest; see sim_network.h */
    int64_t failed_ms;             /* when the last node failed, from the beginning; 0: none has */
    uint64_t rows_digest;          /* of an exact program: the bits of its rows at the end */
    int64_t longest_get_ns;        /* of those beside a stream */
    uint64_t n_cuts, n_cuts_after; /* of tables, that were looked at; after a loss */
    uint64_t n_went_on;            /* times that workers did while a node prepared one */
    uint32_t n_replaced;           /* workers that began in the place of lost ones */
    uint32_t n_too_late;           /* nodes that were told that no process has come in time */
} SimOutcome;

/* Runs it. A wrong value, or a wait without end, ends the test. */
void sim_cluster_run(const SimScenario *scenario, SimOutcome *outcome);

/* ---- sim_exact.c ---- */

#define SIM_EXACT_TABLE "exact"
#define SIM_EXACT_WORKERS 4
#define SIM_EXACT_KEYS 32
#define SIM_EXACT_WIDTH 2

/* The table of an exact program. */
RubatoTableSpec sim_exact_table(const SimScenario *scenario);

/* The function of its workers; user_data is the scenario. */
bool sim_exact_run(RubatoWorker *worker, void *user_data, GError **error);

/* A digest of the rows' bits at the end. */
bool sim_exact_digest(RubatoEngine *engine, uint64_t *digest, GError **error);

/* ---- sim_priority.c ---- */

#define SIM_STREAM_AHEAD 40 /* requests that a worker which streams keeps under way */

typedef struct {
    const SimScenario *scenario;
    bool is_done;       /* all Gets beside the stream */
    int64_t longest_ns; /* of them */
} SimStreamJob;

/* Before a simulation: the handler that its workers call. */
void sim_priority_register(void);

/* What a node does. */
bool sim_priority_run(RubatoEngine *engine, SimStreamJob *job, GError **error);

/* ---- sim_worker.c ---- */

typedef struct {
    const SimScenario *scenario;
    SimHistory *histories[SIM_MOST_TABLES];
    bool has_failed;           /* the worker that is to fail by the seed */
    uint32_t task, begun_task; /* the present one; histories know of */
    int64_t begun_ns;          /* when a worker of that began */
    int64_t *progress_ns;      /* when something was last done */
    struct SimCluster *cluster;
    bool asks_for_cuts;  /* its workers do, now and then */
    uint32_t n_replaced; /* workers that began in the place of lost ones */
} SimJob;

/* The function of each worker; user_data is a SimJob. */
bool sim_worker_run(RubatoWorker *worker, void *user_data, GError **error);

/* ---- sim_ragged.c ---- */

/* A request of a worker: rows of one length. */
typedef struct {
    const RubatoKey *keys;
    size_t n;
    uint32_t length;
    bool by_ticket;
    RubatoRequestOptions options; /* of the ticket */
} SimRaggedCall;

bool sim_ragged_get(RubatoWorker *worker, RubatoRaggedTable *table, const SimRaggedCall *call,
                    int64_t *rows, GError **error);
bool sim_ragged_add(RubatoRaggedTable *table, const SimRaggedCall *call, const int64_t *deltas,
                    GError **error);

/* Appends some values, which depend on the number, to a list that nobody reads. */
bool sim_ragged_append(RubatoRaggedTable *table, uint64_t list, uint64_t number, GError **error);

/* ---- sim_cuts.c ---- */

/* A worker asks for a cut of the tables of its task, which is looked at as others are. */
bool sim_cut_ask(RubatoWorker *worker, const SimJob *job, bool waits, GError **error);

/* ---- sim_replicas.c ---- */

/* If tables have replicas: a worker's node sends again, to the same server, what is not answered
 * about a part that follows from the number. It makes no difference, except to messages. */
void sim_replicas_send_again(const SimJob *job, const char *table, uint64_t number);

/* Whether a key of a worker's Get is in a part of another node, and the part has replicas. */
bool sim_replicas_are_remote(const char *table, const SimJob *job, const SimGet *get);

#endif
