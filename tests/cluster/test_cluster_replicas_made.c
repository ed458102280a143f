/* Nodes that are processes are killed one after the other. Each part has one replica, and gets
 * another one in the place of a lost one, on a node that lives, while workers use it: so the second
 * loss loses nothing either.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <signal.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Nodes 2 and 3 have no workers. Part p of 8 is on server p mod 4, its replica on the next one. */
enum { N_NODES = 4, FIRST_VICTIM = 3, SECOND_VICTIM = 2, N_KEYS = 400, ROUNDS = N_KEYS, MORE = 20 };
enum { WORKERS = 3 };

static const struct {
    const char *over;
    RubatoTableSpec spec;
} cases[] = {
    { "shm", { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1 } },
    { "tcp", { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" } },
    { "tcp",
      { .name = "rows",
        .model = "ssp",
        .staleness = 2,
        .dtype = RUBATO_I64,
        .n_keys = N_KEYS + 1 } },
};

typedef struct {
    RubatoEngine *engine;
    const RubatoTableSpec *spec;
} Job;

static bool are_lost(RubatoEngine *engine)
{
    size_t n;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    const bool are_lost = states[FIRST_VICTIM].is_lost && states[SECOND_VICTIM].is_lost;

    rubato_node_states_free(states, n);
    return are_lost;
}

/* Adds to all keys, and to one alone how often. */
static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoKey rounds_key = ROUNDS;
    int64_t ones[N_KEYS], rows[N_KEYS], rounds = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->spec->name, RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int more = 0; more < MORE; more += are_lost(job->engine), rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) &&
            rubato_kv_table_get_range(table, 0, N_KEYS, rows, error));
        for (size_t i = 0; i < N_KEYS; i++)
            EXPECT(rows[i] >= rounds,
                   "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
                   rounds);
        TRY(rubato_kv_table_clock(table, error));
        if (rounds == 5)
            cluster_say("busy");
    }
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    Job job = { engine, &spec };
    const char *const tables[] = { spec.name, NULL };
    RubatoEngineStats stats;
    int64_t rows[N_KEYS + 1];

    spec.parts = 8;
    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        cluster_run_task(engine, "work", work, &job, tables, error) &&
        rubato_engine_get_range(engine, spec.name, 0, N_KEYS + 1, rows, error));
    for (size_t i = 0; i < N_KEYS; i++)
        EXPECT(rows[i] == rows[ROUNDS],
               "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
               rows[ROUNDS]);
    rubato_engine_stats(engine, &stats);
    EXPECT(stats.new_replicas >= 4, "%" G_GUINT64_FORMAT " new replicas", stats.new_replicas);
    return rubato_engine_barrier(engine, error);
}

START_TEST(parts_have_replicas_again_before_the_next_loss)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                         .nodes = { { 1, 2 }, { 1, 1 }, { 1, 0 }, { 1, 0 } },
                                         .scheduler = 0,
                                         .over = cases[_i].over });

    cluster_start(run, play, &cases[_i].spec);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, FIRST_VICTIM, SIGKILL);
    /* those of the parts of the lost node, which are on node 0 now, and those that it had */
    cluster_wait_for(run, 0, "server 0 has made 2 replicas of its parts on other nodes");
    cluster_wait_for(run, 2, "server 2 has made 2 replicas of its parts on other nodes");
    cluster_signal(run, SECOND_VICTIM, SIGKILL);
    for (uint32_t i = 0; i < SECOND_VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 3");
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replicas made");
    TCase *made = cluster_add_case(suite, "made");

    tcase_add_loop_test(made, parts_have_replicas_again_before_the_next_loss, 0,
                        G_N_ELEMENTS(cases));
    return run_suite(suite);
}
