/* Simulated processes around a real scheduler, of nodes that may be lost and whose places others
 * may take. Each has one server, whose parts have no rows. A process does what it hears at once,
 * and asserts that it makes sense; what it says waits until the test lets it arrive.
 *
 * Threads: the case's only one, one simulation at a time. */
#ifndef TESTS_SUPPORT_SCHEDULER_JOIN_SIM_H
#define TESTS_SUPPORT_SCHEDULER_JOIN_SIM_H

#include <check.h>
#include <stdio.h>

#include "engine/control/unheard.h"
#include "engine/scheduler/scheduler_state.h"

enum {
    JOIN_MOST_NODES = 5,
    JOIN_MOST_PARTS = 4,
    JOIN_MOST_PROCESSES = 40,
    JOIN_MOST_COPIES = 256,
    JOIN_CALLS = 9,
    JOIN_MOST_SNAPSHOTS = 64, /* all together */
};

typedef enum {
    JOIN_HOLDING_NONE,
    JOIN_HOLDING_ROOM,
    JOIN_HOLDING_COPY,
    JOIN_HOLDING_PRIMARY
} JoinHolding;

typedef struct {
    uint32_t node;
    uint64_t incarnation;
    bool has_program, is_alive, is_in, has_tables, has_left, is_free;
    bool catches_up, is_placed;        /* it runs its program; its maps are open */
    uint32_t map, step;                /* of the last step that it has done */
    bool counts_lost[JOIN_MOST_NODES]; /* by node; its links to them are left in a CLOSE */
    JoinHolding parts[JOIN_MOST_PARTS];
    uint32_t room_of[JOIN_MOST_PARTS]; /* JOIN_HOLDING_ROOM: the map by which it has */
    uint64_t n_calls;                  /* that it has proposed */
    bool is_waiting;                   /* for the end of the last one */
    ControlStep move_step;             /* of it, if it is a move: the last one; CLOSE: none */
    uint64_t snapshot;                 /* the newest of which it has done a step, */
    ControlStep snapshot_step;         /* and the last of these */
    uint64_t n_asked, n_answered;      /* snapshots of its own */
    GQueue in;                         /* of Control: from the scheduler */
    GQueue out;                        /* to it */
    uint64_t scheduler;                /* the incarnation of its process to which the link leads */
    uint64_t n_heard;                  /* messages of it that count */
    Unheard unheard;
} JoinProcess;

typedef struct {
    uint32_t from, to; /* processes */
    uint32_t part, map;
} JoinCopy;

typedef struct {
    uint64_t seed;
    GRand *rand;
    Scheduler *scheduler;
    int64_t now_ms, beat_ms;
    uint32_t n_nodes, n_parts, n_processes, n_losses;
    bool has_spare; /* the last node is */
    JoinProcess processes[JOIN_MOST_PROCESSES];
    uint32_t linked[JOIN_MOST_NODES]; /* the process to which the scheduler's node has a link */
    uint32_t newest[JOIN_MOST_NODES]; /* the last process of the node */
    JoinCopy copies[JOIN_MOST_COPIES];
    unsigned n_copies;
    uint32_t n_restarts;  /* of the scheduler, that are left */
    uint32_t n_resumed;   /* nodes that have come back */
    uint32_t n_caught_up; /* processes whose programs have */
    uint32_t n_balanced;  /* nodes that have joined, and got parts of others */
    bool is_alone;        /* the scheduler on its node */
    bool is_dead;         /* its process was killed, and no other has begun */
    uint64_t incarnation; /* of its process */
    GPtrArray *journal;   /* of GBytes */
    bool begins_anew;     /* its journal, behind so many bytes: */
    uint64_t kept_bytes;
    uint32_t n_begun;      /* how often it has */
    uint32_t left_to_send; /* before it is killed */
    uint64_t counted_from; /* of the last ADMIT, */
    uint32_t admit_map;    /* and its map */

    /* By the number of a snapshot: it is there as a whole. */
    bool is_whole[JOIN_MOST_SNAPSHOTS + 1];
    uint32_t n_asked, n_taken; /* snapshots, by all; those of which who asked was told so */
    uint32_t n_moved;          /* calls to move a part that have succeeded */
} JoinSim;

extern JoinSim join_sim;

#define join_assert(condition, ...)                                                    \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "SEED=%" G_GUINT64_FORMAT ": ", join_sim.seed);            \
            fprintf(stderr, __VA_ARGS__);                                              \
            fputc('\n', stderr);                                                       \
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": %s", join_sim.seed, #condition); \
        }                                                                              \
    } while (0)

uint32_t join_draw(uint32_t n); /* below n */
bool join_chance(unsigned percent);

/* What the scheduler says, to the processes that it has links to. */
extern const SchedulerOutput join_output;

/* Returns its number. */
uint32_t join_process_new(uint32_t node, bool has_program);
void join_process_clear(JoinProcess *process);

/* It hears something, asks for something, or leaves. */
void join_process_steps(JoinProcess *process);

/* The scheduler is killed: some of its last messages to the process have not left it. */
void join_process_loses(JoinProcess *process);

/* It says which of the scheduler's messages it has had. */
void join_process_beats(JoinProcess *process);

/* What a process has said arrives, unless the link is another one's. */
void join_arrives(JoinProcess *process);

/* One of the copies is whole, if both processes live and nothing has come between. */
void join_end_a_copy(void);

#endif
