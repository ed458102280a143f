/* A worker returns before it has read all blocks that it was given, and its node is killed. If
 * other nodes have heard that it has returned, its function is not called again in the process that
 * takes its place; else it is. In both cases each row is trained on once.
 *
 * docs/replication.md: Workers that are replaced. */
#include <signal.h>
#include <unistd.h>

#include "engine/collectives/tensor_exchange.h"
#include "tables/client/client.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/kept_training.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, N_BATCHES = 3 };

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 0 }, { 1, 1 } },
                                    .catches_up = true };

typedef enum {
    DEATH_BEFORE, /* nobody has heard that the worker has returned */
    DEATH_BEHIND, /* all have */
    DEATH_N,
} Death;

static Death death;
static bool dies;       /* this process */
static int returned[2]; /* another worker tells the one of the victim that it is known to have */

/* The linker puts these in place of the library's functions. */
__typeof__(table_route_retire) __real_table_route_retire, __wrap_table_route_retire;
void __wrap_table_route_retire(const TableRoute *route, uint32_t rank)
{
    if (dies && death == DEATH_BEFORE)
        (void)kill(getpid(), SIGKILL);
    __real_table_route_retire(route, rank);
}

__typeof__(tensor_exchange_leave) __real_tensor_exchange_leave, __wrap_tensor_exchange_leave;
void __wrap_tensor_exchange_leave(TensorExchange *exchange, uint32_t rank)
{
    char byte;

    if (dies && read(returned[0], &byte, 1) == 1)
        (void)kill(getpid(), SIGKILL);
    __real_tensor_exchange_leave(exchange, rank);
}

static bool is_victim(const RubatoEngine *engine)
{
    return rubato_engine_node(engine) == CLUSTER_IDS[VICTIM];
}

/* Under bsp a Get waits for the clocks of all workers that have not returned. */
static bool train_batch(RubatoKVTable *seen, const RubatoBatch *batch, GError **error)
{
    const int64_t one = 1;
    int64_t rows[KEPT_N_ROWS];

    TRY(rubato_kv_table_get_range(seen, 0, KEPT_N_ROWS, rows, error));
    for (size_t i = 0; i < batch->n_rows; i++) {
        const RubatoKey row = (RubatoKey)batch->label[i];

        TRY(rubato_kv_table_add(seen, &row, 1, &one, error));
    }
    return rubato_kv_table_clock(seen, error);
}

typedef struct {
    const RubatoEngine *engine;
    RubatoDataset *dataset;
} Job;

static bool train(RubatoWorker *worker, void *data, GError **error)
{
    const Job *const job = data;
    const RubatoReaderOptions options = { .batch_rows = 10, .split = RUBATO_SPLIT_DYNAMIC };
    const bool returns = is_victim(job->engine);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    RubatoReader *const reader = rubato_worker_open_reader(worker, job->dataset, &options, error);

    TRY(seen != NULL && reader != NULL);
    for (uint64_t i = 0; (!returns || i < N_BATCHES) && rubato_reader_next(reader, &batch, error);
         i++) {
        TRY(i < rubato_worker_first_clock(worker) || train_batch(seen, batch, error));
        if (!returns && i == N_BATCHES + 1)
            EXPECT(write(returned[1], "", 1) == 1, "nobody can be told");
    }
    const bool ok = !rubato_reader_failed(reader);
    if (!dies) /* where it is closed when the worker has returned */
        rubato_reader_free(reader);
    return ok;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "seen", NULL };
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    int64_t seen[KEPT_N_ROWS];
    Job job = { engine, dataset };

    (void)data;
    dies = is_victim(engine) && g_getenv("RUBATO_JOIN") == NULL;
    TRY(kept_training_create(engine, "bsp", 1, error) &&
        rubato_engine_run(engine,
                          &(RubatoTask){ .name = "train",
                                         .run = train,
                                         .user_data = &job,
                                         .tables = tables,
                                         .on_loss = RUBATO_ON_LOSS_REPLACE },
                          error) &&
        rubato_engine_get_range(engine, "seen", 0, KEPT_N_ROWS, seen, error));
    for (size_t i = 0; i < KEPT_N_ROWS; i++)
        EXPECT(seen[i] == 1, "row %zu was trained on %" G_GINT64_FORMAT " times", i, seen[i]);
    return rubato_engine_barrier(engine, error);
}

START_TEST(rows_that_a_worker_left_when_it_returned_are_read_by_others)
{
    ck_assert_int_eq(pipe(returned), 0);
    death = (Death)_i;
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, NULL);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    const uint32_t newcomer = cluster_start_joining(run, VICTIM, play, NULL);
    cluster_wait_for(run, newcomer,
                     death == DEATH_BEFORE ? "has taken over the workers of a lost process, from"
                                           : "a lost process, which had ended");
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_end(run, newcomer, 0);
    cluster_run_free(run);
    close(returned[0]);
    close(returned[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replaced ends");
    TCase *cases = cluster_add_case(suite, "ends");

    tcase_add_loop_test(cases, rows_that_a_worker_left_when_it_returned_are_read_by_others, 0,
                        DEATH_N);
    return run_suite(suite);
}
