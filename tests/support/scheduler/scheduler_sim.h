/* Simulated nodes around a real scheduler: what each of them does and hears, and the channels
 * between them, which delay but do not reorder. Each node goes through a program of collective
 * calls and tasks, and asserts what it is promised.
 *
 * Threads: the case's only one, one simulation at a time. */
#ifndef TESTS_SUPPORT_SCHEDULER_SCHEDULER_SIM_H
#define TESTS_SUPPORT_SCHEDULER_SCHEDULER_SIM_H

#include <check.h>
#include <stdio.h>

#include "engine/scheduler/scheduler.h"

#define SCHEDULER_SIM_NODES 512 /* at most */
#define SCHEDULER_SIM_CALLS 12
#define SCHEDULER_SIM_HEARTBEAT_MS 500
#define SCHEDULER_SIM_HELLO_MS 200

/* One call of a node's program. */
typedef struct {
    ControlCall what;
    const char *name;
    const char *arguments;
    bool fails; /* the node's part of it */
    bool waits; /* of a RUN: for its end, before the next call */
} SchedulerSimStep;

/* A node's part in a task. */
typedef struct {
    uint32_t epoch;
    uint64_t n_rounds; /* barriers that its workers go through */
    uint64_t round;
    bool has_workers, fails;
    bool running, waiting, retired, failed, cancelled, done, ended;
    uint32_t cause_code;
    char *cause;
} SchedulerSimPart;

typedef struct {
    /* the program */
    SchedulerSimStep steps[SCHEDULER_SIM_CALLS];
    unsigned n_steps;

    /* where it is */
    unsigned step;
    bool proposed, at_work, said_ready; /* of steps[step] */
    uint32_t go_id;
    uint32_t go_step;       /* of a MOVE */
    uint32_t awaited_epoch; /* before the next step; 0: none */
    bool joined, left, free_to_go;
    bool frozen; /* receives and sends nothing */
    bool out;    /* has heard that it was lost */
    int64_t last_beat_ms, last_hello_ms;
    GPtrArray *parts;
    char *verdicts[SCHEDULER_SIM_CALLS + 1]; /* "code text" by op - 1 */
    bool has_heard_loss;                     /* of some node */
} SchedulerSimNode;

typedef struct {
    GByteArray *body;
    int64_t sent_ms;
    bool greeting;
} SchedulerSimPacket;

typedef struct {
    uint64_t seed;
    GRand *rand;
    uint32_t n_nodes, self;
    int64_t now_ms;
    Scheduler *scheduler;
    SchedulerSimNode nodes[SCHEDULER_SIM_NODES];
    GQueue to_node[SCHEDULER_SIM_NODES], to_scheduler[SCHEDULER_SIM_NODES];
    bool answers_at_once; /* the scheduler's own node */
    bool disturbed;       /* a node froze, left early or stopped the run: verdicts are not
                           * compared */
    bool interrupted;
    bool any_frozen;
    int64_t frozen_ms; /* when the first one froze */

    /* What must be the same on all nodes, by op - 1 and by epoch. */
    char *verdicts[SCHEDULER_SIM_CALLS + 1];
    GHashTable *task_ends;
    uint32_t go_ids[SCHEDULER_SIM_CALLS + 1];
    /* of MOVEs: INSTALL or TAKE_BACK; 0: neither yet */
    uint32_t last_steps[SCHEDULER_SIM_CALLS + 1];
    uint32_t go_seen;
} SchedulerSim;

extern SchedulerSim *scheduler_sim; /* the one that runs */

#define scheduler_sim_assert(condition, ...)                                                 \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "SEED=%" G_GUINT64_FORMAT ": ", scheduler_sim->seed);            \
            fprintf(stderr, __VA_ARGS__);                                                    \
            fputc('\n', stderr);                                                             \
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": %s", scheduler_sim->seed, #condition); \
        }                                                                                    \
    } while (0)

/* Pseudo-random: a number below n; true in so many of a hundred cases. */
uint32_t scheduler_sim_draw(uint32_t n);
bool scheduler_sim_chance(unsigned percent);

/* What the scheduler sends to nodes: SchedulerOutput. */
void scheduler_sim_sends(void *user, uint32_t node, const Control *control);
void scheduler_sim_greets(void *user, uint64_t asker, const Control *control);

/* A node says something to the scheduler. */
void scheduler_sim_say(uint32_t number, Control control);

/* The first packet of a channel, from or to that node, arrives. */
void scheduler_sim_pass_on(GQueue *channel, uint32_t number, bool to_node);

/* A node hears something, or does its next step. */
void scheduler_sim_node_hears(uint32_t number, const Control *control);
void scheduler_sim_node_steps(uint32_t number);

void scheduler_sim_packet_free(SchedulerSimPacket *packet);
void scheduler_sim_part_free(SchedulerSimPart *part);

#endif
