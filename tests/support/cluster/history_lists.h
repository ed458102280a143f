/* What workers do with a table of ragged rows in the schedules of history_schedule.h: requests of
 * all kinds that follow from a seed, some of which fail.
 *
 * Threads: inside a node its workers; the engine's calls. */
#ifndef TESTS_SUPPORT_CLUSTER_HISTORY_LISTS_H
#define TESTS_SUPPORT_CLUSTER_HISTORY_LISTS_H

#include <rubato/rubato.h>

/* The spec of its table, "lists": with the model, parts and replicas of the other one. */
RubatoTableSpec history_lists_spec(const RubatoTableSpec *other, uint32_t seed);

/* The first node writes to the table before the task. */
bool history_lists_begin(RubatoEngine *engine, GError **error);

/* A worker's handle. (transfer full) */
RubatoRaggedTable *history_lists_open(RubatoWorker *worker, uint32_t seed, GError **error);

/* Some requests of one clock. They follow from `random` alone: a process in the place of a lost one
 * makes the same. adds_may_fail: with RUBATO_ERROR_INVALID, which is forgiven. */
bool history_lists_play(RubatoWorker *worker, RubatoRaggedTable *lists, GRand *random,
                        bool adds_may_fail, GError **error);

#endif
