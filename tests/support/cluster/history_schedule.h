/* A run of a cluster with faults that follow from a seed: packets that are lost, doubled,
 * reordered, late and cut off, nodes that stand still, and nodes that are lost. The history that
 * its nodes keep is then judged by `rubato history check`, which compares each row.
 *
 * Threads: the case's. */
#ifndef TESTS_SUPPORT_CLUSTER_HISTORY_SCHEDULE_H
#define TESTS_SUPPORT_CLUSTER_HISTORY_SCHEDULE_H

#include <stdint.h>

/* Registers the handler that its workers call: before any case begins. */
void history_schedule_register(void);

/* Fails the case with the seed if the run fails, or anything in its history is wrong. n_clocks: of
 * each worker. */
void history_schedule_play(const char *model, uint32_t seed, uint32_t n_clocks);

typedef enum {
    HISTORY_LOSSES_KILLED, /* the process of each lost node is killed */
    HISTORY_LOSSES_ANY,    /* or it stands still for longer than the timeout, which takes seconds */
} HistoryLosses;

/* The same of four nodes, with replicas. One or two nodes without workers are lost, and other
 * processes may take their places. */
void history_schedule_play_losses(const char *model, uint32_t seed, uint32_t n_clocks,
                                  HistoryLosses losses);

/* The same; the nodes have workers, which other processes have again. One of these may be lost,
 * too. Of a model that takes no announcements. */
void history_schedule_play_replaced(const char *model, uint32_t seed, uint32_t n_clocks,
                                    HistoryLosses losses);

#endif
