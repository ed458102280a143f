/* The readers that workers open, and the share of the dataset that each worker gets. Runs on the
 * worker's thread. */
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
        source = node_reader_open(node_reader, worker->rank);
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
