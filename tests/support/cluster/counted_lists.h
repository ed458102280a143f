/* A table of ragged rows, "lists", whose rows show that each write to them has counted once:
 * workers add to wide rows, one of which takes several messages, append to a list of their own and
 * to one that they share, and replace a row.
 *
 * Threads: inside a node, the one that calls. */
#ifndef TESTS_SUPPORT_CLUSTER_COUNTED_LISTS_H
#define TESTS_SUPPORT_CLUSTER_COUNTED_LISTS_H

#include <rubato/rubato.h>

enum { COUNTED_LISTS_MOST_WORKERS = 8 };

#define COUNTED_LISTS "lists"

/* Makes the table, with the model, the parts and the replicas of another one, and gives the wide
 * rows their lengths. All nodes of a cluster make this call. */
bool counted_lists_create(RubatoEngine *engine, const RubatoTableSpec *like, GError **error);

/* (transfer full) */
RubatoRaggedTable *counted_lists_open(RubatoWorker *worker, GError **error);

/* What a worker writes in a round, the first of which has the number 0. The second function also
 * looks what it sees of its own rounds; under "bsp" the table's clock is that number. */
bool counted_lists_write(RubatoWorker *worker, RubatoRaggedTable *table, int64_t round,
                         GError **error);
bool counted_lists_round(RubatoWorker *worker, RubatoRaggedTable *table, bool is_bsp, int64_t round,
                         GError **error);

/* After the task: each list has its worker's rounds, each once and in their order, and wide rows
 * have as many as all lists together. */
bool counted_lists_check(RubatoEngine *engine, GError **error);

#endif
