/* Training by a reader that snapshots keep. */
#include "tests/support/engine/kept_training.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/engine/engine_fixture.h"

bool kept_training_create(RubatoEngine *engine, const char *model, uint32_t n_replicas,
                          GError **error)
{
    const uint32_t staleness = strcmp(model, "ssp") == 0 ? 2 : 0;
    const RubatoTableSpec seen = { .name = "seen",
                                   .dtype = RUBATO_I64,
                                   .n_keys = KEPT_N_ROWS,
                                   .model = model,
                                   .staleness = staleness,
                                   .replicas = n_replicas };
    const RubatoTableSpec chain = {
        .name = "chain", .n_keys = 1, .model = model, .staleness = staleness, .replicas = n_replicas
    };

    return rubato_engine_create_table(engine, &seen, error) &&
           rubato_engine_create_table(engine, &chain, error);
}

RubatoDataset *kept_training_rows(void)
{
    g_autofree size_t *row_start = g_new0(size_t, KEPT_N_ROWS + 1);
    g_autofree RubatoKey *keys = g_new0(RubatoKey, KEPT_N_ROWS);
    g_autofree float *values = g_new0(float, KEPT_N_ROWS), *labels = g_new0(float, KEPT_N_ROWS);
    const RubatoRows rows = { .n_rows = KEPT_N_ROWS,
                              .n_entries = KEPT_N_ROWS,
                              .row_start = row_start,
                              .key = keys,
                              .value = values,
                              .label = labels };

    for (size_t i = 0; i < KEPT_N_ROWS; i++) {
        row_start[i + 1] = i + 1;
        labels[i] = (float)i;
    }
    return rubato_dataset_new_from_rows(&rows, "numbered", NULL);
}

RubatoReader *kept_training_open_reader(RubatoWorker *worker, RubatoDataset *rows, GError **error)
{
    const RubatoReaderOptions options = { .epochs = KEPT_N_EPOCHS,
                                          .batch_rows = KEPT_N_BATCH,
                                          .shuffle = true,
                                          .seed = 5,
                                          .split = RUBATO_SPLIT_DYNAMIC,
                                          .kept_as = "numbered" };

    return rubato_worker_open_reader(worker, rows, &options, error);
}

typedef struct {
    RubatoReader *reader;
    RubatoKVTable *seen, *chain;
} Trainer;

/* Many Adds, so that a cut is likely to come between two of them, if it may. */
static bool add_batch(const Trainer *it, const RubatoBatch *batch, float was, GError **error)
{
    const RubatoKey key = 0;
    const int64_t one = 1;
    float is = was;

    for (size_t i = 0; i < batch->n_rows; i++) {
        const RubatoKey row = (RubatoKey)batch->label[i];

        TRY(rubato_kv_table_add(it->seen, &row, 1, &one, error));
        is = is * 0.75f + batch->label[i];
    }
    is -= was;
    return rubato_kv_table_clock(it->seen, error) &&
           rubato_kv_table_add(it->chain, &key, 1, &is, error) &&
           rubato_kv_table_clock(it->chain, error);
}

static bool train_batch(RubatoWorker *worker, const Trainer *it, const RubatoBatch *batch,
                        GError **error)
{
    const RubatoKey key = 0;
    float was;

    TRY(rubato_kv_table_get(it->chain, &key, 1, &was, error));
    return rubato_worker_begin_step(worker, error) && add_batch(it, batch, was, error) &&
           rubato_worker_finish_rows(worker, it->reader, batch->n_rows, error) &&
           rubato_worker_end_step(worker, error);
}

/* Returns at once if it is there already. */
static void await_end_of(int fd)
{
    char byte;

    while (fd > 0 && read(fd, &byte, 1) > 0)
        ;
}

typedef struct {
    KeptTraining *training;
    RubatoDataset *dataset;
} Job;

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    KeptTraining *const training = job->training;
    const RubatoSnapshotSpec snapshot = { .directory = training->directory,
                                          .again_after_loss =
                                              training->on_loss != RUBATO_ON_LOSS_FAIL };
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader = kept_training_open_reader(worker, job->dataset, error);
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) chain =
        rubato_worker_open_kv_table(worker, "chain", RUBATO_F32, error);
    const Trainer it = { reader, seen, chain };

    TRY(reader != NULL && seen != NULL && chain != NULL);
    if (training->snapshot_every > 0 && training->on_loss == RUBATO_ON_LOSS_FAIL &&
        rubato_worker_local_rank(worker) == 0)
        TRY(rubato_worker_snapshot(worker, &snapshot, NULL, error));
    for (uint32_t i = 1; rubato_reader_next(reader, &batch, error); i++) {
        if (training->dies_unchanged)
            (void)kill(getpid(), SIGKILL);
        TRY(train_batch(worker, &it, batch, error));
        if (i == training->ends_after)
            return true;
        if (i >= training->hold_after)
            await_end_of(training->hold_fd);
        const uint32_t n = atomic_fetch_add(&training->n_batches, 1) + 1;

        if (training->snapshot_every > 0 && n % training->snapshot_every == 0)
            TRY(rubato_worker_snapshot(worker, &snapshot, NULL, error));
        if (n == training->kill_at)
            (void)kill(getpid(), SIGKILL);
    }
    return !rubato_reader_failed(reader);
}

bool kept_training_run(RubatoEngine *engine, uint32_t workers_per_node, KeptTraining *training,
                       GError **error)
{
    static const char *const tables[] = { "seen", "chain", NULL };
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    Job job = { training, dataset };

    return rubato_engine_run(engine,
                             &(RubatoTask){ .name = "train",
                                            .run = train,
                                            .user_data = &job,
                                            .tables = tables,
                                            .workers_per_node = workers_per_node,
                                            .snapshots = training->snapshots,
                                            .on_loss = training->on_loss },
                             error);
}

bool kept_training_check(RubatoEngine *engine, GError **error)
{
    g_autofree int64_t *seen = g_new(int64_t, KEPT_N_ROWS);

    TRY(rubato_engine_get_range(engine, "seen", 0, KEPT_N_ROWS, seen, error));
    for (size_t i = 0; i < KEPT_N_ROWS; i++)
        REQUIRE(seen[i] == KEPT_N_EPOCHS, "row %zu was trained on %ld times", i, (long)seen[i]);
    return true;
}
