/* Rows of readers that are kept in snapshots, which a worker says to be done in its steps.
 *
 * What a worker changes in a step is in a snapshot as a whole or not at all. The rows that it says
 * to be done in the step are as well: no snapshot asks which rows are done while a worker is in a
 * step, and each asks for those of whole steps. Where Adds are applied by their clock, a snapshot
 * has those of the clocks below the lowest one. The Adds of a step have the clock with which it
 * began, as there is one clock in it and that is behind them. So the rows are taken as done exactly
 * if that clock is below the lowest one. All tables with such a model have the same clocks, before
 * the step and behind it, and no Add of the step comes behind its clock: else the worker is
 * refused.
 *
 * A snapshot has a fast worker's Adds to tables that apply them at once, and not those of the same
 * step to tables that apply them by their clock. So no rows would fit both: where a task has tables
 * of both kinds, a step in which rows are done changes those of the second kind alone.
 *
 * Threads: the worker's. */
#include "engine/task/kept_rows.h"

#include <rubato/data.h>

#include "engine/task/task_run_private.h"
#include "tables/worker.h"

/* The first table whose model applies Adds by their clock; n_routes: there is none. */
static size_t find_by_clock(const RubatoWorker *worker)
{
    size_t i = 0;

    while (i < worker->n_routes && !worker->routes[i].traits->applies_by_clock)
        i++;
    return i;
}

/* A table that the worker has not opened has had no clock. */
static uint64_t clock_of(const RubatoWorker *worker, size_t route)
{
    return worker->clients[route] != NULL ? worker->clients[route]->clock : 0;
}

/* How many changes the worker has made that are applied at once. */
static uint64_t count_at_once(const RubatoWorker *worker)
{
    uint64_t n = 0;

    for (size_t i = 0; i < worker->n_routes; i++)
        if (worker->clients[i] != NULL && !worker->routes[i].traits->applies_by_clock)
            n += worker->clients[i]->stats.n_adds + worker->clients[i]->n_write_calls;
    return n;
}

void kept_rows_begin_step(RubatoWorker *worker)
{
    const size_t by_clock = find_by_clock(worker);

    worker->step_clock =
        by_clock < worker->n_routes ? clock_of(worker, by_clock) : NODE_READER_NO_CLOCK;
    worker->step_has_rows = false;
    worker->step_is_even = true;
    worker->step_at_once = by_clock < worker->n_routes ? count_at_once(worker) : 0;
    for (size_t i = by_clock; i < worker->n_routes; i++)
        worker->step_is_even &= !worker->routes[i].traits->applies_by_clock ||
                                clock_of(worker, i) == worker->step_clock;
}

/* Of a table that applies Adds by their clock: whether it is as a step with rows leaves it. */
static bool is_ended(const RubatoWorker *worker, size_t route)
{
    const uint64_t begun = worker->step_clock, clock = clock_of(worker, route);

    if (!worker->step_is_even || clock != clock_of(worker, find_by_clock(worker)))
        return false;
    return clock == begun || (clock == begun + 1 && (worker->clients[route] == NULL ||
                                                     worker->clients[route]->adding_bytes == 0));
}

bool kept_rows_end_step(const RubatoWorker *worker, GError **error)
{
    const uint64_t begun = worker->step_clock;

    if (worker->step_has_rows && begun != NODE_READER_NO_CLOCK &&
        count_at_once(worker) != worker->step_at_once) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s changes a table that applies Adds at once in a step in "
                    "which rows are done: no snapshot can have the rows as done exactly if it has "
                    "what came of them, because Adds to table %s are applied by their clock; "
                    "change the other table between steps",
                    worker->rank, worker->task, worker->routes[find_by_clock(worker)].spec->name);
        return false;
    }
    for (size_t i = 0; i < worker->n_routes && worker->step_has_rows; i++) {
        if (!worker->routes[i].traits->applies_by_clock || is_ended(worker, i))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s ends a step, in which rows are done, at clock "
                    "%" G_GUINT64_FORMAT " of table %s, and began it at %" G_GUINT64_FORMAT
                    ": such a step has one clock on each table that applies Adds by their clock, "
                    "behind its Adds, and begins at the same clock on all of them",
                    worker->rank, worker->task, clock_of(worker, i), worker->routes[i].spec->name,
                    begun);
        return false;
    }
    return true;
}

static bool refuse_rows(const RubatoWorker *worker, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "worker %u of task %s says that rows are done, but %s", worker->rank, worker->task,
                why);
    return false;
}

bool rubato_worker_finish_rows(RubatoWorker *worker, RubatoReader *reader, uint64_t n_rows,
                               GError **error)
{
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(ReaderRows));
    NodeReaderClock at;

    g_return_val_if_fail(worker != NULL && reader != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    if (!worker->is_in_step)
        return refuse_rows(worker, "it is not in a step", error);
    if (!reader_is_in(reader, &worker->readers))
        return refuse_rows(worker, "the reader is not one of its own", error);
    if (!reader_awaits_word(reader))
        return refuse_rows(worker, "the reader was opened without kept_as", error);
    if (!reader_finish_rows(reader, n_rows, rows, error))
        return false;
    at.clock = worker->step_clock;
    at.lowest = at.clock != NODE_READER_NO_CLOCK
                    ? task_run_lowest_clock(worker->engine_data,
                                            worker->routes[find_by_clock(worker)].table)
                    : 0;
    worker->step_has_rows = true;
    node_reader_note_done(reader_source(reader), (const ReaderRows *)rows->data, rows->len, at);
    return true;
}
