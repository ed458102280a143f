/* Nodes are killed while a task runs that goes on without their workers: what is pending on the
 * others fails and names them, and the next operation is of the living, whatever was pending, over
 * shared memory and TCP, after two losses in a row, and while sets are made and removed.
 *
 * docs/liveness.md: Collectives after a loss. */
#include <signal.h>
#include <string.h>

#include "tests/support/cluster/pending_calls.h"
#include "tests/support/collectives/tensor_suite.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static const RubatoTableSpec replicated = {
    .name = "kept", .dtype = RUBATO_F32, .n_keys = 8, .replicas = 1
};

static bool is_loss(const GError *error)
{
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
}

/* A task that goes on: a table with replicas is what the run needs for that. */
static bool continue_task(RubatoEngine *engine, RubatoTask task, const void *data, GError **error)
{
    task.name = "work";
    task.user_data = (void *)(uintptr_t)data;
    task.on_loss = RUBATO_ON_LOSS_CONTINUE;
    return rubato_engine_create_table(engine, &replicated, error) &&
           rubato_engine_run(engine, &task, error) && rubato_engine_barrier(engine, error);
}

/* ---- every kind of call ---- */

enum { N_NODES = PENDING_NODES, LOST = PENDING_LOST, N_VALUES = 1 << 16 };

typedef struct {
    const char *over;
    int signal;
} Loss;

static const Loss losses[] = { { "shm", SIGKILL }, { "tcp", SIGKILL }, { "tcp", SIGSTOP } };

static bool is_named(const GError *failure)
{
    g_autofree char *name = g_strdup_printf("node %u ", CLUSTER_IDS[LOST]);

    return is_loss(failure) && strstr(failure->message, name) != NULL &&
           strstr(failure->message, "worker 1 of task work is lost") != NULL;
}

/* The sum of ranks 0 and 2, and one for each. */
static bool sum_over_living(RubatoWorker *worker, PendingCalls *calls, GError **error)
{
    const RubatoReduce mean = { .reduction = RUBATO_REDUCTION_MEAN, .divides_by_all = true };
    const RubatoReduce least = { .reduction = RUBATO_REDUCTION_MIN };
    const RubatoReduce product = { .reduction = RUBATO_REDUCTION_PRODUCT };
    const RubatoTensor sum = pending_calls_tensor(calls, "allreduce", 0);
    const RubatoTensor scattered = pending_calls_tensor(calls, "scattered", 1);
    double count[] = { 1, rubato_worker_rank(worker) };

    for (uint32_t i = 0; i < 3; i++) { /* in full, and again */
        TRY(rubato_worker_allreduce(worker, &sum, NULL, error));
        REQUIRE(calls->output[0][N_VALUES - 1] == 1 + 3, "(%g)", calls->output[0][N_VALUES - 1]);
        TRY(rubato_worker_reduce_scatter(worker, &scattered, NULL, error));
        REQUIRE(calls->output[1][N_VALUES / 2 - 1] == 1 + 3);
        TRY(rubato_worker_allreduce(worker, &sum, &mean, error));
        REQUIRE(calls->output[0][0] == 2, "(%g)", calls->output[0][0]);
        TRY(rubato_worker_allreduce(worker, &sum, &least, error));
        REQUIRE(calls->output[0][0] == 1);
        TRY(rubato_worker_allreduce(worker, &sum, &product, error));
        REQUIRE(calls->output[0][0] == 3);
    }
    TRY(rubato_worker_reduce(worker, count, 2, RUBATO_REDUCTION_SUM, error));
    REQUIRE(count[0] == 2 && count[1] == 2, "(%g, %g)", count[0], count[1]);
    return true;
}

/* The splits and roots of before make no sense any more. */
static bool exchange_over_living(RubatoWorker *worker, PendingCalls *calls, GError **error)
{
    static const uint64_t old[N_NODES] = { N_VALUES / 2, 0, N_VALUES / 2 };
    static const uint64_t splits[] = { 1, N_VALUES - 1 };
    const RubatoTensor tensor = pending_calls_tensor(calls, "dealt", 0);
    g_auto(RubatoGathered) dealt = { 0 };
    g_auto(RubatoGathered) rows = { 0 };
    g_autoptr(GError) refused = NULL;

    REQUIRE(!rubato_worker_alltoall(worker, &tensor, old, &dealt, &refused));
    TRY(cluster_expect_error(&refused, RUBATO_ERROR_INVALID, "its splits are not all of its rows",
                             error));
    TRY(rubato_worker_alltoall(worker, &tensor, splits, &dealt, error));
    const float *const values = dealt.values;
    const uint64_t n = rubato_worker_rank(worker) == 0 ? 1 : N_VALUES - 1;
    REQUIRE(dealt.n_rows == 2 * n && dealt.rows[0] == n && dealt.rows[1] == n);
    REQUIRE(values[0] == 1 && values[n] == 3);
    TRY(rubato_worker_allgather(worker, &tensor, &rows, error));
    REQUIRE(rows.n_rows == 2 * N_VALUES && ((const float *)rows.values)[N_VALUES] == 3);
    REQUIRE(!rubato_worker_broadcast(worker, &tensor, 2, &refused));
    TRY(cluster_expect_error(&refused, RUBATO_ERROR_INVALID, "root", error));
    TRY(rubato_worker_broadcast(worker, &tensor, 1, error)); /* worker 2 */
    REQUIRE(calls->output[0][7] == 3);
    return true;
}

static bool make_sets_of_living(RubatoWorker *worker, GError **error)
{
    const uint32_t dead[] = { 0, 1 }, living[] = { 2, 0 };
    g_autoptr(GError) refused = NULL;
    uint32_t set, last, rank;

    REQUIRE(!rubato_worker_make_set(worker, dead, 2, &set, &refused));
    TRY(cluster_expect_error(&refused, RUBATO_ERROR_INVALID, "worker 1 was lost", error));
    TRY(rubato_worker_make_set(worker, living, 2, &set, error));
    REQUIRE(set == 2, "(set %u)", set);
    TRY(rubato_worker_set_barrier(worker, set, "b", error) &&
        rubato_worker_set_join(worker, set, &last, error));
    TRY(rubato_worker_remove_set(worker, set, error));
    TRY(rubato_worker_named_barrier(worker, "b", error));
    TRY(rubato_worker_join(worker, &last, error));
    REQUIRE(last < 2);
    REQUIRE(rubato_worker_set_rank(worker, 0, &rank) && rank == rubato_worker_rank(worker) / 2);
    return true;
}

/* Set 1 had workers 1 and 2, and is now worker 2's. */
static bool look_at_sets(RubatoWorker *worker, GError **error)
{
    uint32_t ranks[N_NODES] = { 9, 9, 9 };

    REQUIRE(rubato_worker_n_workers(worker) == N_NODES);
    REQUIRE(rubato_worker_set_ranks(worker, 0, ranks, N_NODES) == 2);
    REQUIRE(ranks[0] == 0 && ranks[1] == 2 && ranks[2] == 9);
    REQUIRE(rubato_worker_set_ranks(worker, 1, ranks, 1) == 1 && ranks[0] == 2);
    REQUIRE(rubato_worker_set_size(worker, 1) == 1 && rubato_worker_set_size(worker, 2) == 0);
    return true;
}

static bool go_on_without(RubatoWorker *worker, PendingCalls *calls, GError **error)
{
    g_autoptr(GError) failure = NULL;

    return pending_calls_fail(worker, calls, is_named, &failure, error) &&
           look_at_sets(worker, error) && sum_over_living(worker, calls, error) &&
           exchange_over_living(worker, calls, error) && make_sets_of_living(worker, error);
}

static bool wait_for_lost(RubatoWorker *worker, void *user_data, GError **error)
{
    PendingCalls *const calls = pending_calls_new(N_VALUES);
    const uint32_t rank = rubato_worker_rank(worker);
    bool ok;

    for (size_t i = 0; i < N_VALUES; i++)
        calls->input[i] = (float)rank + 1;
    ok = rubato_worker_named_barrier(worker, "begin", error);
    if (rank == LOST) /* which lasts for longer than the worker runs */
        return ok && pending_calls_be_lost(worker, calls, ((const Loss *)user_data)->signal, error);
    ok = ok && go_on_without(worker, calls, error);
    pending_calls_free(calls);
    return ok;
}

static bool play_every_kind(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t ranks[] = { 2, 1 };
    static const RubatoWorkerSet set = { ranks, 2 };

    return continue_task(engine, (RubatoTask){ .run = wait_for_lost, .sets = &set, .n_sets = 1 },
                         data, error);
}

START_TEST(calls_of_every_kind_fail_by_a_loss_and_then_are_of_the_living)
{
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } },
                                 .over = losses[_i].over,
                                 .timeout_ms = cluster_short_timeout_ms() };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_every_kind, &losses[_i]);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 2, 0);
    if (losses[_i].signal == SIGSTOP)
        cluster_signal(run, LOST, SIGKILL);
    cluster_expect_end(run, LOST, -SIGKILL);
    g_autofree char *gone = cluster_text_after(run, LOST, "gone at ");
    /* Of a silent node a busy machine makes it longer: the time does not count in which the others
     * got no processor. How long it takes then, test_cluster_collectives_faults measures. */
    for (uint32_t node = 0; node < N_NODES && losses[_i].signal == SIGKILL; node += 2) {
        g_autofree char *ended = cluster_text_after(run, node, "ended at ");

        ck_assert_int_le(g_ascii_strtoll(ended, NULL, 10) - g_ascii_strtoll(gone, NULL, 10),
                         2 * shape.timeout_ms);
    }
    cluster_run_free(run);
}
END_TEST

/* ---- training ---- */

enum { N_LAYERS = 3, LAYER = 600, MORE_STEPS = 30 };

/* Each worker has one of some points, and their mean is looked for: the weights go there, whichever
 * of them live. A layer travels in one tensor. */
typedef struct {
    float weights[N_LAYERS][LAYER];
    int64_t step, end; /* INT64_MAX: not known yet */
    uint32_t n_living; /* in the end */
} Model;

static float point_of(uint32_t rank, uint32_t layer, uint32_t i)
{
    return (float)(rank * 3 + layer + i % 7);
}

static bool train_step(RubatoWorker *worker, Model *model, GError **error)
{
    static const char *const names[N_LAYERS] = { "grad/0", "grad/1", "grad/2" };
    const RubatoReduce mean = { .reduction = RUBATO_REDUCTION_MEAN };
    float gradients[N_LAYERS][LAYER];
    RubatoTensor tensors[N_LAYERS];

    /* A loss may come between two of the calls below. Then tickets are left of those before it,
     * whose errors must not be told in a later step. */
    g_autoptr(RubatoTicketScope) scope = rubato_worker_ticket_scope(worker);
    (void)scope; /* its end is what it is for */

    for (uint32_t k = 0; k < N_LAYERS; k++) {
        tensors[k] = (RubatoTensor){ .name = names[k],
                                     .dtype = RUBATO_F32,
                                     .n_dims = 1,
                                     .shape = { LAYER },
                                     .input = gradients[k],
                                     .output = gradients[k] };
        for (uint32_t i = 0; i < LAYER; i++)
            gradients[k][i] = model->weights[k][i] - point_of(rubato_worker_rank(worker), k, i);
    }
    if (model->step % 3 == 0) {
        TRY(rubato_worker_allreduce_group(worker, tensors, N_LAYERS, &mean, error));
    } else {
        for (uint32_t k = 0; k < N_LAYERS; k++)
            TRY(rubato_worker_allreduce_async(worker, &tensors[k], &mean, NULL, error) != 0);
        TRY(rubato_worker_wait_all(worker, error));
    }
    for (uint32_t k = 0; k < N_LAYERS; k++)
        for (uint32_t i = 0; i < LAYER; i++)
            model->weights[k][i] -= .5F * gradients[k][i];
    model->step++;
    return true;
}

/* The living have done the last step, or not: all go on from the one that is furthest. */
static bool recover_once(RubatoWorker *worker, Model *model, GError **error)
{
    g_auto(RubatoGathered) steps = { 0 };
    const RubatoTensor step = {
        .name = "step", .dtype = RUBATO_I64, .n_dims = 1, .shape = { 1 }, .input = &model->step
    };
    const RubatoTensor weights = { .name = "weights",
                                   .dtype = RUBATO_F32,
                                   .n_dims = 1,
                                   .shape = { N_LAYERS * LAYER },
                                   .input = model->weights,
                                   .output = model->weights };
    uint32_t best = 0;

    TRY(rubato_worker_allgather(worker, &step, &steps, error));
    const int64_t *const of = steps.values;
    for (uint32_t place = 1; place < steps.n_rows; place++)
        best = of[place] > of[best] ? place : best;
    TRY(rubato_worker_broadcast(worker, &weights, best, error));
    model->step = of[best];
    if (steps.n_rows == model->n_living)
        model->end = of[best] + MORE_STEPS;
    return true;
}

static bool recover(RubatoWorker *worker, Model *model, GError **error)
{
    g_autoptr(GError) failure = NULL;

    while (!recover_once(worker, model, &failure)) {
        if (!is_loss(failure)) {
            g_propagate_error(error, g_steal_pointer(&failure));
            return false;
        }
        g_clear_error(&failure);
    }
    cluster_say("recovered with %u", rubato_worker_set_size(worker, 0));
    return true;
}

/* All have the same weights, which are near the mean of the living's points. */
static bool judge(RubatoWorker *worker, const Model *model, GError **error)
{
    g_auto(RubatoGathered) all = { 0 };
    const RubatoTensor weights = { .name = "all weights",
                                   .dtype = RUBATO_F32,
                                   .n_dims = 2,
                                   .shape = { 1, N_LAYERS * LAYER },
                                   .input = model->weights };
    uint32_t ranks[8];
    const uint32_t n = rubato_worker_set_ranks(worker, 0, ranks, G_N_ELEMENTS(ranks));
    float mean = 0;

    TRY(rubato_worker_allgather(worker, &weights, &all, error));
    REQUIRE(n == model->n_living && all.n_rows == n);
    for (uint32_t i = 0; i < n; i++) {
        REQUIRE(memcmp((const float *)all.values + (size_t)i * N_LAYERS * LAYER, model->weights,
                       sizeof model->weights) == 0,
                "(worker %u has other weights)", ranks[i]);
        mean += point_of(ranks[i], 2, 5) / (float)n;
    }
    REQUIRE(model->weights[2][5] > mean - 1e-3F && model->weights[2][5] < mean + 1e-3F, "(%g: %g)",
            model->weights[2][5], mean);
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    Model model = { .end = INT64_MAX, .n_living = *(const uint32_t *)user_data };

    while (model.step < model.end) {
        g_autoptr(GError) failure = NULL;

        if (train_step(worker, &model, &failure)) {
            if (model.step == 10)
                cluster_say("busy");
            continue;
        }
        if (!is_loss(failure)) {
            g_propagate_error(error, g_steal_pointer(&failure));
            return false;
        }
        TRY(recover(worker, &model, error));
    }
    return judge(worker, &model, error);
}

static bool play_training(RubatoEngine *engine, const void *data, GError **error)
{
    return continue_task(engine, (RubatoTask){ .run = train }, data, error);
}

/* How often nodes are killed, over what, and whether at once or once the others have gone on. */
static const struct {
    const char *over;
    uint32_t n_lost;
    bool at_once;
    uint32_t workers;
} kills[] = {
    { "shm", 1, false, 1 }, { "tcp", 1, false, 2 }, { "shm", 2, true, 1 },
    { "tcp", 2, true, 1 },  { "tcp", 2, false, 2 },
};

START_TEST(training_goes_on_over_the_living)
{
    const uint32_t w = kills[_i].workers, n_lost = kills[_i].n_lost;
    const uint32_t n_living = (4 - n_lost) * w;
    const ClusterShape shape = { .n_nodes = 4,
                                 .nodes = { { 1, w }, { 1, w }, { 0, w }, { 0, w } },
                                 .over = kills[_i].over };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_training, &n_living);
    for (uint32_t node = 0; node < 4; node++)
        cluster_wait_for(run, node, "busy");
    for (uint32_t i = 0; i < n_lost; i++) {
        g_autofree char *text = g_strdup_printf("recovered with %u", (4 - i) * w);

        for (uint32_t node = 0; node < 2 && i > 0 && !kills[_i].at_once; node++)
            cluster_wait_for(run, node, text);
        cluster_signal(run, 3 - i, SIGKILL);
    }
    for (uint32_t node = 0; node < 4; node++)
        cluster_expect_end(run, node, node < 4 - n_lost ? 0 : -SIGKILL);
    cluster_run_free(run);
}
END_TEST

/* ---- sets ---- */

/* Makes a set of all that live, uses it, and removes it. */
static bool churn_once(RubatoWorker *worker, GError **error)
{
    uint32_t ranks[8], set;
    const uint32_t n = rubato_worker_set_ranks(worker, 0, ranks, G_N_ELEMENTS(ranks));
    double sum = rubato_worker_rank(worker), expected = 0;
    RubatoTensor tensor = { .name = "sum", .dtype = RUBATO_F64, .input = &sum, .output = &sum };

    for (uint32_t i = 0; i < n; i++)
        expected += ranks[i];
    TRY(rubato_worker_make_set(worker, ranks, n, &set, error));
    REQUIRE(set == 2, "(set %u)", set);
    tensor.set = set;
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(sum == expected, "(%g, not %g)", sum, expected);
    TRY(rubato_worker_remove_set(worker, set, error));
    return true;
}

/* Workers 0 and 1 live, and do not notice in their set, which is set 1. */
static bool use_set_of_living(RubatoWorker *worker, GError **error)
{
    double sum = 1;
    const RubatoTensor tensor = {
        .name = "pair", .dtype = RUBATO_F64, .input = &sum, .output = &sum, .set = 1
    };

    if (rubato_worker_rank(worker) > 1)
        return true;
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(sum == 2, "(%g)", sum);
    return true;
}

/* Behind a loss all agree on whether the set is there. */
static bool clean(RubatoWorker *worker, GError **error)
{
    g_autoptr(GError) failure = NULL;

    while (rubato_worker_set_size(worker, 2) > 0 &&
           !rubato_worker_remove_set(worker, 2, &failure)) {
        if (!is_loss(failure)) {
            g_propagate_error(error, g_steal_pointer(&failure));
            return false;
        }
        g_clear_error(&failure);
    }
    return true;
}

static bool churn(RubatoWorker *worker, void *user_data, GError **error)
{
    int more = 20;

    (void)user_data;
    for (int n = 0; more > 0; n++) {
        g_autoptr(GError) failure = NULL;

        TRY(use_set_of_living(worker, error));
        if (churn_once(worker, &failure)) {
            more -= rubato_worker_set_size(worker, 0) < rubato_worker_n_workers(worker);
            if (n == 10)
                cluster_say("busy");
            continue;
        }
        if (!is_loss(failure)) {
            g_propagate_error(error, g_steal_pointer(&failure));
            return false;
        }
        TRY(clean(worker, error));
    }
    return true;
}

static bool play_churn(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t ranks[] = { 0, 1 };
    static const RubatoWorkerSet set = { ranks, 2 };

    return continue_task(engine, (RubatoTask){ .run = churn, .sets = &set, .n_sets = 1 }, data,
                         error);
}

START_TEST(sets_that_are_made_and_removed_when_a_node_is_killed_are_the_same_on_all)
{
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 1, 1 }, { 1, 1 }, { 1, 2 } },
                                 .over = _i == 0 ? "shm" : "tcp" };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_churn, NULL);
    for (uint32_t node = 0; node < N_NODES; node++)
        cluster_wait_for(run, node, "busy");
    cluster_signal(run, 2, SIGKILL);
    for (uint32_t node = 0; node < N_NODES; node++)
        cluster_expect_end(run, node, node < 2 ? 0 : -SIGKILL);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_collectives_losses");
    TCase *const cases = cluster_add_case(suite, "losses");

    tcase_add_loop_test(cases, calls_of_every_kind_fail_by_a_loss_and_then_are_of_the_living, 0,
                        G_N_ELEMENTS(losses));
    tcase_add_loop_test(cases, training_goes_on_over_the_living, 0, G_N_ELEMENTS(kills));
    tcase_add_loop_test(
        cases, sets_that_are_made_and_removed_when_a_node_is_killed_are_the_same_on_all, 0, 2);
    return run_suite(suite);
}
