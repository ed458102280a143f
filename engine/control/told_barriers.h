/* The barriers that the workers of a task have passed, by their clocks. If a process gets the
 * workers of a lost node, they call some of these barriers again, and the others of the task do not
 * wait in them any more.
 *
 * A worker's clock is here the lowest one that it has on any table of the task. Its barriers are
 * those that it called at lower clocks than the one with which it begins again, which it does not
 * repeat, and the rest, which it does.
 *
 * Threads: one at a time for a record. The other functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_CONTROL_TOLD_BARRIERS_H
#define RUBATO_ENGINE_CONTROL_TOLD_BARRIERS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/control/state_walk.h"

/* ---- a node tells the clocks at which its workers have come to a barrier ---- */

/* In the place of the clock of a worker that has returned. */
#define BARRIER_RETURNED UINT64_MAX

/* Adds "3 4 -": the next worker of the node has come at that clock. */
void told_barrier_write(GString *text, uint64_t clock);

/* ---- the scheduler keeps them ---- */

typedef struct BarrierRecord BarrierRecord;

/* workers_of[i]: the workers of node i in the task. (transfer full) */
BarrierRecord *barrier_record_new(uint32_t n_nodes, const uint32_t *workers_of);
void barrier_record_free(BarrierRecord *record); /* NULL is allowed */

/* The node's workers are in the next barrier: what it has told. False, and nothing changes: it
 * makes no sense. */
bool barrier_record_arrive(BarrierRecord *record, uint32_t node, const char *clocks);

/* All have passed it. */
void barrier_record_pass(BarrierRecord *record);

/* The node is lost: its workers are in no barrier. */
void barrier_record_lose(BarrierRecord *record, uint32_t node);

/* Adds a line for the process that gets the node's workers: `round` barriers were passed. */
void barrier_record_write(const BarrierRecord *record, uint32_t node, uint64_t round,
                          GString *text);

/* ---- that process ---- */

/* Reads the line, of n workers, which begin with these clocks. left[i]: how many of the barriers
 * that were passed worker i comes to again. An empty text is about none. False, and nothing
 * changes: it is no such line. */
bool told_barriers_read(const char *text, const uint64_t *clocks, uint32_t n, uint64_t *round,
                        uint64_t *left);

/* ---- as bytes ---- */

/* Walks through all of it; of a new one, of the same nodes and workers, if it reads. */
void barrier_record_walk(StateWalk *walk, BarrierRecord *record);

#endif
