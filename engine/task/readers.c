/* The readers that workers open, and the share of the dataset that each worker gets. Runs on the
 * worker's thread.
 *
 * Readers that are kept in snapshots. What a worker changes in a step is in a snapshot as a whole
 * or not at all. The rows that it says to be done in the step are as well: no snapshot asks which
 * rows are done while a worker is in a step, and each asks for those of whole steps. Where Adds are
 * applied by their clock, a snapshot has those of the clocks below the lowest one. The Adds of a
 * step have the clock with which it began, as there is one clock in it and that is behind them. So
 * the rows are taken as done exactly if that clock is below the lowest one. All tables with such a
 * model have the same clocks: else the worker is refused. */
#include <rubato/data.h>

#include "engine/task/task_run_private.h"
#include "tables/worker.h"

RubatoReader *rubato_worker_open_reader(RubatoWorker *worker, RubatoDataset *dataset,
                                        const RubatoReaderOptions *options, GError **error)
{
    RubatoReaderOptions filled;
    BlockSource *source;

    g_return_val_if_fail(worker != NULL && dataset != NULL && options != NULL, NULL);
    if (!worker_check_owner(worker, error) || !reader_options_fill(options, &filled, error))
        return NULL;
    if (worker->n_readers == CONTROL_MAX_READERS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: a worker opens more than %u readers; read several epochs by one",
                    worker->task, CONTROL_MAX_READERS);
        return NULL;
    }
    NodeReader *node_reader =
        task_run_node_reader(worker->engine_data, worker->n_readers++, dataset, &filled, error);
    if (node_reader == NULL)
        return NULL;
    if (filled.split == RUBATO_SPLIT_DYNAMIC)
        source = node_reader_open(node_reader);
    else if (filled.split == RUBATO_SPLIT_BY_KEY)
        source = key_split_new(dataset, &filled, worker->rank, worker->n_workers);
    else
        source = fixed_split_new(dataset, &filled, worker->rank, worker->n_workers);
    RubatoReader *const reader = reader_new(dataset, &filled, source, worker->cancelled, error);
    if (reader == NULL)
        return NULL;
    reader_tell_progress(reader, node_reader_add_worker(node_reader, worker->rank));
    reader_enter(reader, &worker->readers);
    return reader;
}

/* ---- rows that are done, for snapshots ---- */

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

void readers_begin_step(RubatoWorker *worker)
{
    const size_t by_clock = find_by_clock(worker);

    worker->step_clock =
        by_clock < worker->n_routes ? clock_of(worker, by_clock) : NODE_READER_NO_CLOCK;
    worker->step_has_rows = false;
}

bool readers_end_step(const RubatoWorker *worker, GError **error)
{
    const uint64_t begun = worker->step_clock;

    for (size_t i = 0; i < worker->n_routes && worker->step_has_rows; i++) {
        const uint64_t clock = clock_of(worker, i);

        if (!worker->routes[i].traits->applies_by_clock ||
            (clock <= begun + 1 && clock == clock_of(worker, find_by_clock(worker))))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s ends a step, in which rows are done, at clock "
                    "%" G_GUINT64_FORMAT " of table %s, and began it at %" G_GUINT64_FORMAT
                    ": such a step has one clock on each table that applies Adds by their clock",
                    worker->rank, worker->task, clock, worker->routes[i].spec->name, begun);
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
