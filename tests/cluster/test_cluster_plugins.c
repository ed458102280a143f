/* Nodes that have registered a model of their own: all of them, or not all. */
#include <stdlib.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/eager_model.h"
#include "tests/support/runner.h"

static const ClusterShape TWO = { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } };

/* ---- nodes ---- */

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 0, 99 };
    const int64_t ones[] = { 1, 1 };
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "table", RUBATO_I64, error);

    (void)user_data;
    for (int i = 0; table != NULL && i < 10; i++)
        if (!rubato_kv_table_add(table, keys, 2, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return table != NULL;
}

static bool count_with_own_model(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "table", .dtype = RUBATO_I64, .n_keys = 100, .model = "eager"
    };
    const char *const tables[] = { "table", NULL };
    const RubatoKey key = 99;
    int64_t value;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, NULL, tables, error) ||
        !rubato_engine_get(engine, "table", &key, 1, &value, error))
        return false;
    EXPECT(value == 20, "it is %" G_GINT64_FORMAT, value);
    return rubato_engine_barrier(engine, error);
}

static bool meet(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return rubato_engine_barrier(engine, error);
}

/* ---- cases: each node is a fork, which has registered what the case had when it began ---- */

START_TEST(nodes_that_have_registered_the_same_use_it)
{
    ClusterRun *run = cluster_run_new(&TWO);

    ck_assert(rubato_register_model(&eager_model, NULL));
    cluster_start(run, count_with_own_model, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static void expect_refused(ClusterRun *run, uint32_t process, const char *text)
{
    g_autofree char *start = g_strdup_printf("error %d: ", RUBATO_ERROR_MISMATCH);

    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, start);
    cluster_expect_text(run, process, text);
}

START_TEST(node_that_has_registered_more_is_refused_by_name)
{
    ClusterRun *run = cluster_run_new(&TWO);

    cluster_start_node(run, 0, meet, NULL);
    ck_assert(rubato_register_model(&eager_model, NULL));
    cluster_start_node(run, 1, meet, NULL);
    expect_refused(run, 1, "has registered the model eager, the scheduler has not");
    cluster_run_free(run);
}
END_TEST

/* Nodes load them first of all, so none of them comes as far as to meet the other. */
START_TEST(plugin_of_the_cluster_file_that_cannot_be_loaded_is_named)
{
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.lines = "plugins = ( \"/no/such.so\" );\n";
    run = cluster_run_new(&shape);
    cluster_start_node(run, 0, meet, NULL);
    cluster_expect_end(run, 0, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, 0, "'plugins': cannot load the plug-in /no/such.so: ");
    cluster_run_free(run);
}
END_TEST

START_TEST(node_that_has_registered_less_is_refused_by_name)
{
    ClusterRun *run = cluster_run_new(&TWO);

    cluster_start_node(run, 1, meet, NULL);
    ck_assert(rubato_register_model(&eager_model, NULL));
    cluster_start_node(run, 0, meet, NULL);
    expect_refused(run, 1, "the scheduler has registered the model eager, node 7");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_plugins");
    TCase *tcase = cluster_add_case(suite, "plugins");

    tcase_add_test(tcase, nodes_that_have_registered_the_same_use_it);
    tcase_add_test(tcase, node_that_has_registered_more_is_refused_by_name);
    tcase_add_test(tcase, plugin_of_the_cluster_file_that_cannot_be_loaded_is_named);
    tcase_add_test(tcase, node_that_has_registered_less_is_refused_by_name);
    return run_suite(suite);
}
