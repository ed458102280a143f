/* The readers that workers open: which share of a dataset is theirs. Runs on the worker's thread. */
#include <rubato/data.h>

#include "io/data/reader.h"
#include "tables/worker.h"

RubatoReader *rubato_worker_open_reader(RubatoWorker *worker, RubatoDataset *dataset,
                                        const RubatoReaderOptions *options, GError **error)
{
    RubatoReaderOptions filled;

    g_return_val_if_fail(worker != NULL && dataset != NULL && options != NULL, NULL);
    if (!reader_options_fill(options, &filled, error))
        return NULL;
    return reader_new(dataset, &filled,
                      fixed_split_new(dataset, &filled, worker->rank, worker->n_workers),
                      worker->cancelled, error);
}
