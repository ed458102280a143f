/* A node with workers of a task that replaces them is killed while workers make collectives: every
 * worker is told of it, those of the process in its place, too, and then all of them agree on how
 * to go on and do so together. Workers that wait for one another in a table and in a collective
 * fail the task, which says so.
 *
 * docs/liveness.md: A task whose workers are replaced. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, N_WORKERS = 5, N_STEPS = 24, FATAL = 9 };

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 2 }, { 1, 2 } },
                                    .catches_up = true };

/* Where in its step a worker of the victim has its process killed. */
typedef enum {
    DEATH_BEFORE, /* before it asks for what all sum */
    DEATH_AFTER,  /* when it has the sum, as others may have */
    DEATH_ADDED,  /* before its clock */
    DEATH_CLOCKED,
    DEATH_END, /* behind the last step */
    DEATH_N
} Death;

typedef struct {
    Death place;
    bool reads;    /* the table, which is under bsp, at the beginning of each step */
    bool is_again; /* it is killed again, by the process in its place */
} Plan;

/* What a worker knows. */
typedef struct {
    RubatoWorker *worker;
    const Plan *plan;
    RubatoKVTable *rows;
    int64_t clock;    /* of the table */
    int64_t state[2]; /* steps that are done, and the sum of all sums */
} Trainee;

static void die_at(const Trainee *it, Death place)
{
    const bool is_first = g_getenv("RUBATO_JOIN") == NULL;
    const int64_t fatal = place == DEATH_END ? N_STEPS : is_first ? FATAL : FATAL + 3;

    if (it->plan->place == place && it->state[0] == fatal &&
        (is_first || g_getenv("DIES") != NULL) &&
        rubato_worker_node(it->worker) == CLUSTER_IDS[VICTIM] &&
        rubato_worker_local_rank(it->worker) == 1)
        kill(getpid(), SIGKILL);
}

static bool sum_up(const Trainee *it, const char *name, uint32_t set, int64_t *value,
                   GError **error)
{
    const RubatoTensor tensor = {
        .name = name, .dtype = RUBATO_I64, .input = value, .output = value, .set = set
    };

    return rubato_worker_allreduce(it->worker, &tensor, /* reduce= */ NULL, error);
}

/* The table is as far as the steps are. What the lost worker had added is dropped when it comes
 * again. */
static bool catch_up(Trainee *it, GError **error)
{
    const RubatoKey key = rubato_worker_rank(it->worker);
    const int64_t one = 1;

    while (it->clock < it->state[0]) {
        TRY(rubato_kv_table_add(it->rows, &key, 1, &one, error));
        die_at(it, DEATH_ADDED);
        TRY(rubato_kv_table_clock(it->rows, error));
        it->clock++;
    }
    return true;
}

/* A sum in the set of the workers from 2 on, and one of all. */
static bool step(Trainee *it, GError **error)
{
    const uint32_t rank = rubato_worker_rank(it->worker);
    int64_t value = 1, seen;
    const RubatoKey key = 0;

    if (it->plan->reads)
        TRY(rubato_kv_table_get(it->rows, &key, 1, &seen, error));
    if (rank >= 2) {
        TRY(sum_up(it, "some", 1, &value, error));
        EXPECT(value == N_WORKERS - 2, "%" G_GINT64_FORMAT " in the set", value);
    }
    die_at(it, DEATH_BEFORE);
    value = rank + it->state[0];
    TRY(sum_up(it, "all", 0, &value, error));
    if (it->plan->reads && it->state[0] == FATAL) /* so all have the sum */
        TRY(rubato_worker_barrier(it->worker, error));
    die_at(it, DEATH_AFTER);
    it->state[0]++;
    it->state[1] += value;
    TRY(catch_up(it, error));
    die_at(it, DEATH_CLOCKED);
    return true;
}

/* All have what the one has that is furthest. */
static bool agree_once(Trainee *it, GError **error)
{
    g_auto(RubatoGathered) gathered = { 0 };
    const RubatoTensor steps = {
        .name = "steps", .dtype = RUBATO_I64, .n_dims = 1, .shape = { 1 }, .input = it->state
    };
    const RubatoTensor state = { .name = "state",
                                 .dtype = RUBATO_I64,
                                 .n_dims = 1,
                                 .shape = { 2 },
                                 .input = it->state,
                                 .output = it->state };
    uint32_t furthest = 0;

    TRY(rubato_worker_allgather(it->worker, &steps, &gathered, error));
    const int64_t *const all = gathered.values;
    for (uint32_t rank = 0; rank < N_WORKERS; rank++)
        if (all[rank] > all[furthest])
            furthest = rank;
    return rubato_worker_broadcast(it->worker, &state, furthest, error);
}

static bool is_loss(const GError *error)
{
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
}

static bool agree(Trainee *it, GError **error)
{
    g_autoptr(GError) fault = NULL;
    bool ok;

    do {
        g_clear_error(&fault);
        ok = agree_once(it, &fault);
    } while (!ok && is_loss(fault));
    if (!ok)
        g_propagate_error(error, g_steal_pointer(&fault));
    return ok && catch_up(it, error);
}

/* Nobody returns while others need it. */
static bool end(Trainee *it, bool *is_over, GError **error)
{
    die_at(it, DEATH_END);
    *is_over = rubato_worker_set_barrier(it->worker, 0, "end", error);
    return *is_over;
}

static bool check_loss(const GError *error, GError **wrong)
{
    if (strstr(error->message, "was lost") != NULL &&
        strstr(error->message, "workers 3-4 of task long are lost with it") != NULL)
        return true;
    g_set_error(wrong, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED, "it says: %s", error->message);
    return false;
}

static bool work(RubatoWorker *worker, void *data, GError **error)
{
    g_autoptr(RubatoKVTable) rows = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    Trainee it = { .worker = worker,
                   .plan = data,
                   .rows = rows,
                   .clock = (int64_t)rubato_worker_first_clock(worker) };
    bool is_over = false;
    unsigned n_losses = 0;

    TRY(rows != NULL);
    while (!is_over) {
        g_autoptr(GError) fault = NULL;

        if (it.state[0] < N_STEPS ? step(&it, &fault) : end(&it, &is_over, &fault))
            continue;
        if (!is_loss(fault)) {
            g_propagate_error(error, g_steal_pointer(&fault));
            return false;
        }
        n_losses++;
        TRY(check_loss(fault, error));
        TRY(agree(&it, error));
    }
    EXPECT(n_losses == 1 || (it.plan->is_again && n_losses == 2), "told of %u losses", n_losses);
    EXPECT(it.state[1] ==
               N_WORKERS * N_STEPS * (N_STEPS - 1) / 2 + N_STEPS * N_WORKERS * (N_WORKERS - 1) / 2,
           "the sum is %" G_GINT64_FORMAT, it.state[1]);
    return true;
}

static bool run_task(RubatoEngine *engine, const Plan *plan, GError **error)
{
    static const char *const tables[] = { "rows", NULL };
    static const uint32_t ranks[] = { 2, 3, 4 };
    static const RubatoWorkerSet set = { ranks, G_N_ELEMENTS(ranks) };

    TRY(rubato_engine_create_table(engine,
                                   &(RubatoTableSpec){ .name = "rows",
                                                       .dtype = RUBATO_I64,
                                                       .n_keys = N_WORKERS,
                                                       .model = plan->reads ? "bsp" : "asp",
                                                       .replicas = 1 },
                                   error));
    return rubato_engine_run(engine,
                             &(RubatoTask){ .name = "long",
                                            .run = work,
                                            .user_data = (void *)(uintptr_t)plan,
                                            .tables = tables,
                                            .sets = &set,
                                            .n_sets = 1,
                                            .on_loss = RUBATO_ON_LOSS_REPLACE },
                             error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    int64_t rows[N_WORKERS];

    TRY(run_task(engine, data, error) &&
        rubato_engine_get_range(engine, "rows", 0, N_WORKERS, rows, error));
    for (size_t i = 0; i < N_WORKERS; i++)
        EXPECT(rows[i] == N_STEPS, "worker %zu has added %" G_GINT64_FORMAT, i, rows[i]);
    cluster_say("done");
    return rubato_engine_barrier(engine, error);
}

/* Those that live have the sum, and wait in the table for the lost workers' clock; the new ones
 * wait for them in a collective. */
static bool play_deadlock(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;

    EXPECT(!run_task(engine, data, &found), "%s", "it ended");
    EXPECT(strstr(found->message, "waits in the collective steps for worker") != NULL, "%s",
           found->message);
    TRY(cluster_expect_error(&found, RUBATO_ERROR_DEADLOCK, "of table rows, where worker", error));
    cluster_say("done");
    return rubato_engine_barrier(engine, error);
}

static uint32_t start_joining(ClusterRun *run, ClusterPlay joined, const Plan *plan, bool dies)
{
    if (dies)
        g_setenv("DIES", "1", TRUE);
    const uint32_t process = cluster_start_joining(run, VICTIM, joined, plan);
    g_unsetenv("DIES");
    return process;
}

static void expect_whole_run(ClusterRun *run, uint32_t newcomer)
{
    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process");
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_end(run, newcomer, 0);
    cluster_expect_text(run, newcomer, "done");
    cluster_run_free(run);
}

START_TEST(workers_in_the_place_of_lost_ones_agree_with_all_others)
{
    const Plan plan = { .place = (Death)_i };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    expect_whole_run(run, start_joining(run, play, &plan, /* dies= */ false));
}
END_TEST

START_TEST(workers_in_the_place_of_lost_ones_may_be_lost_too)
{
    const Plan plan = { .place = DEATH_AFTER, .is_again = true };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    g_string_truncate(run->processes[0].text, 0);
    const uint32_t first = start_joining(run, play, &plan, /* dies= */ true);
    cluster_wait_for(run, first, "has taken over the workers of a lost process");
    cluster_wait_for(run, 0, "node 20 (127.0.0.1:0) was lost: ");
    expect_whole_run(run, start_joining(run, play, &plan, /* dies= */ false));
}
END_TEST

START_TEST(a_table_and_a_collective_that_wait_for_each_other_fail_the_task)
{
    const Plan plan = { .place = DEATH_AFTER, .reads = true };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_deadlock, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    expect_whole_run(run, start_joining(run, play_deadlock, &plan, /* dies= */ false));
}
END_TEST

static Suite *replaced_suite(void)
{
    Suite *suite = suite_create("collectives of workers that are replaced");
    TCase *cases = cluster_add_case(suite, "cases");

    tcase_add_loop_test(cases, workers_in_the_place_of_lost_ones_agree_with_all_others, 0, DEATH_N);
    tcase_add_test(cases, workers_in_the_place_of_lost_ones_may_be_lost_too);
    tcase_add_test(cases, a_table_and_a_collective_that_wait_for_each_other_fail_the_task);
    return suite;
}

int main(void)
{
    return run_suite(replaced_suite());
}
