/* Workers that append to shared lists, a table of ragged rows, and look what others have appended:
 * every Get shows what the table's model lets it show, in order, and nothing twice. Each worker has
 * a row of its own besides, which it assigns and erases.
 *
 * Threads: ragged_lists_work from workers; the rest from the case's own. */
#ifndef TESTS_SUPPORT_ENGINE_RAGGED_LISTS_H
#define TESTS_SUPPORT_ENGINE_RAGGED_LISTS_H

#include <rubato/rubato.h>

enum { RAGGED_LISTS_SHARED = 40, RAGGED_LISTS_MOST_WORKERS = 8 };

typedef struct {
    const char *model;
    bool is_hashed;
    uint32_t staleness; /* "ssp" */
    uint32_t n_clocks;
    uint32_t scale; /* how often each value is repeated, at least */
    /* Called by each worker at each clock; may be NULL. */
    bool (*at_clock)(RubatoWorker *worker, uint64_t clock, void *user, GError **error);
    void *user;
} RaggedLists;

/* A spec for its table, "lists". */
RubatoTableSpec ragged_lists_spec(const RaggedLists *lists);

/* A RubatoTaskFunc whose user_data is a RaggedLists. */
bool ragged_lists_work(RubatoWorker *worker, void *lists, GError **error);

/* Reads rows of all parts. */
bool ragged_lists_read(RubatoEngine *engine, const RaggedLists *lists, GError **error);

/* After such a task of n workers: the lists have all of it. */
bool ragged_lists_check(RubatoEngine *engine, const RaggedLists *lists, uint32_t n_workers,
                        GError **error);

#endif
