/* Writes histories by hand, and has them checked: of two workers of one task on a table of one
 * float a row.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_CLUSTER_HISTORY_WRITER_H
#define TESTS_SUPPORT_CLUSTER_HISTORY_WRITER_H

#include "io/history/history.h"

enum { WRITER_WORKERS = 2 };

typedef struct {
    History *history;
    HistoryStream *workers[WRITER_WORKERS];
    HistoryStream *server; /* what the node's server has applied; NULL: nothing yet */
    uint64_t clocks[WRITER_WORKERS], n_adds[WRITER_WORKERS];
    uint64_t n_calls[WRITER_WORKERS]; /* of its clock */
} Writer;

/* The folder of the present case: a fixture makes and removes it. */
extern char *writer_folder;
void writer_set_up(void);
void writer_tear_down(void);

/* The file of a node, with what each node says. (transfer full) */
History *writer_open_node(uint32_t node, const char *model, const char *update);

/* The task begins, on node 0; it ends, and key 5 is read. NAN: it is not. */
void writer_begin(Writer *writer, const char *model, const char *update);
void writer_end(Writer *writer, float last);

void writer_add(Writer *writer, uint32_t worker, RubatoKey key, float delta);
void writer_get(Writer *writer, uint32_t worker, RubatoKey key, float value);
void writer_announce(Writer *writer, uint32_t worker, uint64_t iteration, RubatoKey key);
void writer_tick(Writer *writer, uint32_t worker);

/* The worker calls a handler that writes, on the first parts. Returns the number of the call. Not
 * done: it has failed. */
uint64_t writer_call(Writer *writer, uint32_t worker, uint32_t n_parts, bool is_done);

/* The node's server has run on part 0 the call that the worker has made at its present clock: key 5
 * has become another one. */
void writer_run(Writer *writer, uint32_t worker, uint64_t number, float before, float after);

/* The same for any part, by any server. (transfer full) */
HistoryStream *writer_new_server(History *history);
void writer_apply(HistoryStream *server, const HistoryApplied *applied, float before, float after);

/* Statuses of `rubato history check`. */
enum { EXIT_WRONG = 1, EXIT_INCOMPLETE = 3 };

/* Has the folder checked, with a flag or NULL; the program ends with this status. Returns what it
 * prints. (transfer full) */
char *writer_check(const char *flag, int status);

/* Changes a byte of node 0's file, each `stride` of them in turn: the check refuses the file or
 * judges it, and never crashes. */
void writer_expect_no_crash(gsize stride);

/* The same for the first bytes of any file. */
void writer_expect_no_crash_of(const char *name, gsize end, gsize stride);

#endif
