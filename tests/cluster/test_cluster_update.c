/* Update rules over several processes: changed numbers reach the servers of all nodes, state and
 * resets go to the rows' servers, every node can list the bad gradients of all, and wrong messages
 * are dropped and logged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

enum { N_KEYS = 40 };

static const ClusterShape two_nodes = { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 1 } } };

/* ---- what nodes ask ---- */

/* The worker of node 0 halves the rate after each of its Adds; the other one adds at the end. */
static bool halve(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    double ones[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (int i = 0; i < N_KEYS; i++)
        ones[i] = rank == 1 && i == 3 ? NAN : 1;
    for (int i = 0; i < 4 && rank == 0; i++)
        if (!rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) ||
            !rubato_worker_tune(worker, "t", RUBATO_HYPER_LEARNING_RATE, ldexp(1, -i - 1), error))
            return false;
    return rubato_worker_barrier(worker, error) &&
           (rank == 0 || rubato_kv_table_add_range(table, 0, N_KEYS, ones, error));
}

static bool check_state(RubatoEngine *engine, GError **error)
{
    const RubatoKey keys[] = { 30, 3, 17 };
    const double values[] = { 3, 4, 5 }, states[] = { -1, -2, -3 };
    double read[3];

    if (!rubato_engine_set(engine, "m", keys, 3, values, error) ||
        !rubato_engine_get_state(engine, "m", keys, 3, read, error))
        return false;
    EXPECT(read[0] == 0 && read[1] == 0 && read[2] == 0, "%g", read[0]);
    if (!rubato_engine_set_state(engine, "m", keys, 3, states, error) ||
        !rubato_engine_get_state(engine, "m", keys, 3, read, error))
        return false;
    EXPECT(memcmp(read, states, sizeof read) == 0, "%g %g %g", read[0], read[1], read[2]);
    if (!rubato_engine_get_state_range(engine, "m", 29, 3, read, error))
        return false;
    EXPECT(read[0] == 0 && read[1] == -1 && read[2] == 0, "%g %g %g", read[0], read[1], read[2]);
    if (!rubato_engine_reset_range(engine, "m", 0, 20, error) ||
        !rubato_engine_get_state(engine, "m", keys, 3, read, error))
        return false;
    EXPECT(read[0] == -1 && read[1] == 0 && read[2] == 0, "%g %g %g", read[0], read[1], read[2]);
    if (!rubato_engine_get(engine, "m", keys, 3, read, error))
        return false;
    EXPECT(read[0] == 3 && read[1] == 0.5 && read[2] == 0.5, "%g %g %g", read[0], read[1], read[2]);
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec learned = {
        .name = "t",
        .dtype = RUBATO_F64,
        .n_keys = N_KEYS,
        .update = "sgd",
        .rule = { .learning_rate = 1, .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE }
    };
    const RubatoTableSpec moved = {
        .name = "m", .dtype = RUBATO_F64, .n_keys = N_KEYS, .update = "momentum", .init_value = 0.5
    };
    const char *const tables[] = { "t", NULL };
    double values[N_KEYS];

    (void)data;
    if (!rubato_engine_create_table(engine, &learned, error) ||
        !rubato_engine_create_table(engine, &moved, error) ||
        !cluster_run_task(engine, "halve", halve, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "t", 0, N_KEYS, values, error))
        return false;
    for (int i = 0; i < N_KEYS; i++)
        EXPECT(values[i] == -1 - 0.5 - 0.25 - 0.125 - (i == 3 ? 0 : 0.0625), "key %d: %g", i,
               values[i]);
    if (!rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[1] &&
        (!check_state(engine, error) ||
         !rubato_engine_tune(engine, "t", RUBATO_HYPER_LEARNING_RATE, 2, error)))
        return false;
    if (!rubato_engine_barrier(engine, error))
        return false;
    for (int i = 0; i < N_KEYS; i++)
        values[i] = -1;
    if (rubato_engine_node(engine) == CLUSTER_IDS[0] &&
        !rubato_engine_add_range(engine, "t", 0, N_KEYS, values, error))
        return false;
    if (!rubato_engine_barrier(engine, error) ||
        !rubato_engine_get_range(engine, "t", 4, 36, values, error))
        return false;
    for (int i = 0; i < 36; i++)
        EXPECT(values[i] == -1.9375 + 2, "key %d: %g", 4 + i, values[i]);
    return true;
}

START_TEST(rules_do_on_all_nodes_what_one_asks)
{
    ClusterRun *run = cluster_run_new(&two_nodes);

    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- bad gradients ---- */

static bool expect_counts(RubatoEngine *engine, const RubatoBadGradients *expected, size_t n,
                          GError **error)
{
    g_autofree RubatoBadGradients *found = NULL;
    size_t n_found;

    if (!rubato_engine_bad_gradients(engine, "t", &found, &n_found, error))
        return false;
    EXPECT(n_found == n, "%zu workers", n_found);
    for (size_t i = 0; i < n; i++) {
        const RubatoBadGradients *one = &found[i], *wanted = &expected[i];

        EXPECT(one->worker == wanted->worker, "number %zu is worker %u", i, one->worker);
        EXPECT(one->n_nan == wanted->n_nan && one->n_infinite == wanted->n_infinite &&
                   one->n_large == wanted->n_large && one->n_refused_rows == wanted->n_refused_rows,
               "worker %u: %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
               ", %" G_GUINT64_FORMAT,
               one->worker, one->n_nan, one->n_infinite, one->n_large, one->n_refused_rows);
    }
    return true;
}

/* Keys 0 to 13 are of the first server, 14 to 26 of the second, the others of node 1. */
static const RubatoBadGradients in_task[] = {
    { .worker = 0, .n_nan = 2, .n_large = 1, .n_refused_rows = 3 },
    { .worker = 2, .n_nan = 1, .n_infinite = 2, .n_refused_rows = 3 },
};

/* Rank 0 is node 0's, 1 and 2 are node 1's. All ask, in the task, once all have added. */
static bool add_bad(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    double deltas[N_KEYS] = { 0 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    if (table == NULL)
        return false;
    if (rank == 0) {
        deltas[3] = deltas[35] = NAN;
        deltas[20] = 101;
    } else if (rank == 2) {
        deltas[3] = NAN;
        deltas[20] = deltas[39] = -INFINITY;
    }
    return rubato_kv_table_add_range(table, 0, N_KEYS, deltas, error) &&
           rubato_worker_barrier(worker, error) &&
           expect_counts(user_data, in_task, G_N_ELEMENTS(in_task), error);
}

static bool play_bad(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t",
                                   .dtype = RUBATO_F64,
                                   .n_keys = N_KEYS,
                                   .update = "sgd",
                                   .rule = { .learning_rate = 1,
                                             .max_gradient = 100,
                                             .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } };
    const char *const tables[] = { "t", NULL };
    const double bad = NAN;
    const RubatoKey key = 39;
    const RubatoBadGradients with_engine[] = {
        in_task[0], in_task[1], { .worker = UINT32_MAX, .n_nan = 1, .n_refused_rows = 1 }
    };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           expect_counts(engine, NULL, 0, error) && rubato_engine_barrier(engine, error) &&
           cluster_run_task(engine, "add", add_bad, engine, tables, error) &&
           (rubato_engine_node(engine) != CLUSTER_IDS[0] ||
            rubato_engine_add(engine, "t", &key, 1, &bad, error)) &&
           rubato_engine_barrier(engine, error) &&
           expect_counts(engine, with_engine, G_N_ELEMENTS(with_engine), error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(every_node_tells_the_bad_gradients_that_all_have_counted)
{
    static const ClusterShape shape = { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 2 } } };
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_bad, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- numbers that nodes do not agree on ---- */

static bool play_otherwise(RubatoEngine *engine, const void *data, GError **error)
{
    const bool is_first = rubato_engine_node(engine) == CLUSTER_IDS[0];
    const RubatoTableSpec spec = { .name = "t",
                                   .update = "ftrl",
                                   .rule = { .l1 = is_first ? 1 : 1.0000000001 } };
    GError *found = NULL;

    (void)data;
    EXPECT(!rubato_engine_create_table(engine, &spec, &found), "there is a table");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "l1 1.0000000001", error);
}

START_TEST(other_numbers_on_another_node_are_a_mismatch)
{
    ClusterRun *run = cluster_run_new(&two_nodes);

    cluster_start(run, play_otherwise, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- messages that make no sense ---- */

typedef struct {
    const char *says;
    MessageKind kind;
    RubatoKeys keys;
    size_t row_bytes; /* of its input */
    RubatoTuning tuning;
} WrongMessage;

static const RubatoKey listed = 0;

#define NO_HYPER "a hyper-parameter that cannot be"
#define NO_FIT "a request whose values do not fit its keys"
#define NO_TASK "a message that belongs to a task, without one"
#define NO_NUMBER "a number of what this server does not have"
#define NO_COUNT "a count that is not asked for as one number"

static const WrongMessage wrong_messages[] = {
    { NO_HYPER, MESSAGE_TUNE, { .n = 0 }, 0, { (RubatoHyper)14, 1 } },
    { NO_HYPER, MESSAGE_TUNE, { .n = 0 }, 0, { RUBATO_HYPER_BETA1, 0.5 } },
    { NO_HYPER, MESSAGE_TUNE, { .n = 0 }, 0, { RUBATO_HYPER_LEARNING_RATE, NAN } },
    { NO_HYPER, MESSAGE_TUNE, { .n = 1 }, 0, { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { NO_HYPER, MESSAGE_TUNE, { .keys = &listed, .n = 1 }, 0, { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { NO_FIT, MESSAGE_TUNE, { .first = 39, .n = 1 }, 8, { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { NO_FIT, MESSAGE_GET, { .first = 39, .n = 1 }, 8, { 0 } },
    { NO_FIT, MESSAGE_SET, { .first = 39, .n = 1 }, 4, { 0 } },
    { NO_FIT, MESSAGE_SET_STATE, { .first = 39, .n = 1 }, 8, { 0 } },
    { NO_FIT, MESSAGE_RESET, { .first = 39, .n = 1 }, 8, { 0 } },
    { NO_TASK, MESSAGE_ANNOUNCE, { .first = 39, .n = 1 }, 0, { 0 } },
    { "a key that this server does not hold", MESSAGE_RESET, { .first = 0, .n = 1 }, 0, { 0 } },
    { NO_FIT, MESSAGE_LIST_BAD_GRADIENTS, { .n = 1 }, 32, { 0 } },
    { NO_NUMBER, MESSAGE_LIST_BAD_GRADIENTS, { .first = 0, .n = 2 }, 0, { 0 } },
    { NO_NUMBER, MESSAGE_LIST_BAD_GRADIENTS, { .first = UINT64_MAX - 2, .n = 2 }, 0, { 0 } },
    { NO_NUMBER, MESSAGE_LIST_BAD_GRADIENTS, { .keys = &listed, .n = 1 }, 0, { 0 } },
    { NO_COUNT, MESSAGE_COUNT_BAD_GRADIENTS, { .n = 2 }, 0, { 0 } },
    { NO_COUNT, MESSAGE_COUNT_KEYS, { .keys = &listed, .n = 1 }, 0, { 0 } },
};

/* The same from a worker, though no task runs. */
static const WrongMessage worker_messages[] = {
    { "a request of a worker between tasks", MESSAGE_ADD, { .first = 39, .n = 1 }, 8, { 0 } },
    { "a request of a worker between tasks", MESSAGE_LIST_BAD_GRADIENTS, { .n = 0 }, 0, { 0 } },
};

/* Node 0 sends them to the server of node 1 as itself would. */
static void send_nonsense(RubatoEngine *engine, const WrongMessage *messages, size_t n,
                          uint32_t worker)
{
    const double values[] = { NAN, NAN, NAN, NAN };

    for (size_t i = 0; i < n; i++) {
        const WrongMessage *wrong = &messages[i];
        Message message = { .kind = wrong->kind,
                            .table = 0,
                            .part = 2,
                            .server = 2,
                            .node = engine->office.self,
                            .request = { .worker = worker,
                                         .keys = wrong->keys,
                                         .input = wrong->row_bytes > 0 ? values : NULL },
                            .row_bytes = wrong->row_bytes };

        if (wrong->kind == MESSAGE_TUNE)
            message.request.tuning = wrong->tuning;
        post_office_tell(&engine->office, &message);
    }
    post_office_flush(&engine->office);
}

static void expect_dropped(ClusterRun *run, const WrongMessage *messages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        g_autofree char *text = g_strdup_printf("sent %s; dropped", messages[i].says);

        cluster_expect_text(run, 1, text);
    }
}

static void say_refused(Server *server, void *data)
{
    (void)data;
    cluster_say("refused: %" G_GUINT64_FORMAT, server->n_refused);
}

/* The nonsense finds a server that has one count. */
static bool play_nonsense(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec learned = {
        .name = "t",
        .dtype = RUBATO_F64,
        .n_keys = N_KEYS,
        .update = "sgd",
        .rule = { .learning_rate = 1, .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE }
    };
    const RubatoBadGradients nobody = { .worker = UINT32_MAX, .n_nan = 1, .n_refused_rows = 1 };
    const RubatoKey key = 39;
    const double one = 1, bad = NAN;
    double value;

    (void)data;
    if (!rubato_engine_create_table(engine, &learned, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[0]) {
        if (!rubato_engine_add(engine, "t", &key, 1, &bad, error))
            return false;
        send_nonsense(engine, wrong_messages, G_N_ELEMENTS(wrong_messages), UINT32_MAX);
        send_nonsense(engine, worker_messages, G_N_ELEMENTS(worker_messages), 1000000);
        if (!rubato_engine_add(engine, "t", &key, 1, &one, error))
            return false;
    }
    if (!rubato_engine_barrier(engine, error) ||
        !rubato_engine_get(engine, "t", &key, 1, &value, error))
        return false;
    EXPECT(value == -1, "%g", value);
    if (rubato_engine_node(engine) == CLUSTER_IDS[1])
        servers_run(engine->servers, engine->n_servers, say_refused, NULL);
    return expect_counts(engine, &nobody, 1, error) && rubato_engine_barrier(engine, error);
}

START_TEST(messages_that_make_no_sense_change_nothing)
{
    ClusterRun *run = cluster_run_new(&two_nodes);

    cluster_start(run, play_nonsense, NULL);
    cluster_expect_success(run);
    cluster_expect_text(run, 1, "refused: 20");
    expect_dropped(run, wrong_messages, G_N_ELEMENTS(wrong_messages));
    expect_dropped(run, worker_messages, G_N_ELEMENTS(worker_messages));
    cluster_run_free(run);
}
END_TEST

static Suite *update_suite(void)
{
    Suite *suite = suite_create("update rules over several processes");
    TCase *tcase = cluster_add_case(suite, "update rules");

    tcase_add_test(tcase, rules_do_on_all_nodes_what_one_asks);
    tcase_add_test(tcase, every_node_tells_the_bad_gradients_that_all_have_counted);
    tcase_add_test(tcase, other_numbers_on_another_node_are_a_mismatch);
    tcase_add_test(tcase, messages_that_make_no_sense_change_nothing);
    return suite;
}

int main(void)
{
    return run_suite(update_suite());
}
