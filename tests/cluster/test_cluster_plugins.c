/* Nodes that have registered a model of their own, all of them or not all; and plug-in files that
 * the cluster file names. */
#include <math.h>
#include <rubato/handler.h>
#include <rubato/stream.h>
#include <stdlib.h>
#include <string.h>

#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/eager_model.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#define VERSION_TEXT G_STRINGIFY(RUBATO_PLUGIN_VERSION)

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

static bool count_once(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 9;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_I64, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, &key, 1, &one, error);
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

/* ---- nodes with the plug-in files of tests/outside/plugin ---- */

enum { N_KEYS = 1000 };

/* Adds 1 to each key, and another 1 to those below 100, in the first clock. Then clocks go on. */
static bool write_and_wait(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey keys[N_KEYS];
    float ones[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "few", RUBATO_F32, error);

    (void)user_data;
    for (size_t i = 0; i < N_KEYS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    if (table == NULL)
        return false;
    if (rubato_worker_rank(worker) == 0 &&
        (!rubato_kv_table_add(table, keys, N_KEYS, ones, error) ||
         !rubato_kv_table_add(table, keys, 100, ones, error)))
        return false;
    for (int clock = 0; clock < 4; clock++)
        if (!rubato_kv_table_clock(table, error))
            return false;
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 7;
    const float gradient = -1;
    float value;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "weights", RUBATO_F32, error);

    (void)user_data;
    for (int clock = 0; table != NULL && clock < 5; clock++)
        if (!rubato_kv_table_get(table, &key, 1, &value, error) ||
            !rubato_kv_table_add(table, &key, 1, &gradient, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return table != NULL;
}

/* The model, the storage and the rule of plugin.so. */
static bool use_own_weights(RubatoEngine *engine, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "weights", .model = "patient", .storage = "shelf", .update = "heavy"
    };
    const char *const tables[] = { "weights", NULL };
    const RubatoKey key = 7;
    float value;

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "train", train, NULL, tables, error) ||
        !rubato_engine_get(engine, "weights", &key, 1, &value, error))
        return false;
    double velocity = 0, expected = 0;

    for (int i = 0; i < 10; i++) { /* two workers, five gradients each */
        velocity = .9 * velocity - 1;
        expected -= .01 * velocity;
    }
    EXPECT(fabs((double)value - expected) < 1e-4, "it is %g, not %g", (double)value, expected);
    return true;
}

/* The admission, the expiry and the handler of forgetting.so. */
static bool use_own_forgetting(RubatoEngine *engine, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "few", .admit = "even", .expire = "small", .max_bytes = 8 << 20, .evict = "score"
    };
    const RubatoHandlerCall call = { .table = "few", .handler = "largest" };
    const char *const tables[] = { "few", NULL };
    const RubatoKey keys[] = { 4, 5, 104 };
    g_autoptr(GBytes) result = NULL;
    RubatoTableStats stats;
    float values[3];
    double largest;

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "write", write_and_wait, NULL, tables, error) ||
        !rubato_engine_get(engine, "few", keys, 3, values, error) ||
        !rubato_engine_call_handler(engine, &call, &result, error) ||
        !rubato_engine_table_stats(engine, "few", &stats, error))
        return false;
    EXPECT(values[0] == 2 && values[1] == 0 && values[2] == 0, "they are %g, %g and %g",
           (double)values[0], (double)values[1], (double)values[2]);
    EXPECT(g_bytes_get_size(result) == sizeof largest, "%zu bytes", g_bytes_get_size(result));
    memcpy(&largest, g_bytes_get_data(result, NULL), sizeof largest);
    EXPECT(largest == 2, "the largest is %g", largest);
    EXPECT(stats.n_admitted > 0 && stats.n_admitted <= stats.n_refused,
           "%" G_GUINT64_FORMAT " admitted, %" G_GUINT64_FORMAT " refused", stats.n_admitted,
           stats.n_refused);
    return true;
}

/* `rubato follow` finds the kind, too: it has the plug-in, and nobody streams to there. */
static bool follow_by_command(const char *uri, GError **error)
{
    const char *const argv[] = {
        "/bin/sh",
        "-c",
        "exec timeout 20 \"$0\" follow \"$1\" --plugin \"$2\" --serve tcp://nowhere.invalid:1 2>&1",
        TEST_BIN_DIR "/rubato",
        uri,
        PLUGIN_FOLDER "/outside_streaming.so",
        NULL
    };
    g_autofree char *said = NULL;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                      NULL, NULL, error))
        return false;
    EXPECT(strstr(said, "nowhere.invalid") != NULL, "it says \"%s\"", said);
    return true;
}

/* The kind of stream of streaming.so: a version flows out of a task, and a follower has it. */
static bool use_own_stream(RubatoEngine *engine, const char *directory, GError **error)
{
    g_autofree char *uri = g_strconcat("near:", directory, NULL);
    const RubatoTaskStream stream = { .uri = uri };
    const char *const tables[] = { "counts", NULL };
    const RubatoTask task = {
        .name = "stream",
        .run = count_once,
        .tables = tables,
        .workers_per_node = 1,
        .stream = &stream,
    };
    const RubatoKey key = 9;
    g_autoptr(RubatoFollower) follower = NULL;
    RubatoFollowed followed;
    uint64_t version;
    int64_t value;

    EXPECT(!rubato_stream_check("near:", NULL), "near: alone names no stream");
    if (!rubato_stream_check(uri, error) ||
        !rubato_engine_create_table(
            engine, &(RubatoTableSpec){ .name = "counts", .dtype = RUBATO_I64, .n_keys = 10 },
            error) ||
        !rubato_engine_run(engine, &task, error) || !rubato_engine_run(engine, &task, error))
        return false;
    follower = rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, error);
    do
        if (follower == NULL || !rubato_follower_advance(follower, 20, &followed, error) ||
            !rubato_follower_get(follower, "counts", &key, 1, &value, NULL, &version, error))
            return false;
    while (version < 2 && followed != RUBATO_FOLLOWED_NOTHING);
    EXPECT(version == 2 && value == 4, "version %" G_GUINT64_FORMAT " has %" G_GINT64_FORMAT,
           version, value);
    return true;
}

static bool follow_nothing(GError **error)
{
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = "near:/no/such" }, error);
    g_autoptr(GError) fault = NULL;
    RubatoFollowed followed;

    if (follower == NULL)
        return false;
    EXPECT(!rubato_follower_advance(follower, 0, &followed, &fault), "it has found something");
    EXPECT(strcmp(fault->message, "nobody has shown anything") == 0, "it says %s", fault->message);
    return follow_by_command("near:/no/such", error);
}

static bool use_plugins(RubatoEngine *engine, const void *data, GError **error)
{
    return use_own_weights(engine, error) && use_own_forgetting(engine, error) &&
           use_own_stream(engine, data, error) && follow_nothing(error) &&
           rubato_engine_barrier(engine, error);
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

START_TEST(plugins_of_the_cluster_file_bring_one_of_every_kind)
{
    char *const directory = g_dir_make_tmp("rubato-near-XXXXXX", NULL);
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.lines = "plugins = ( \"" PLUGIN_FOLDER "/outside_plugin.so\", \"" PLUGIN_FOLDER
                  "/outside_forgetting.so\", \"" PLUGIN_FOLDER "/outside_streaming.so\" );\n";
    run = cluster_run_new(&shape);
    cluster_start(run, use_plugins, directory);
    cluster_expect_success(run);
    cluster_run_free(run);
    remove_tree(directory);
    g_free(directory);
}
END_TEST

START_TEST(plugin_of_another_version_is_refused_with_both_versions)
{
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.lines = "plugins = ( \"" PLUGIN_FOLDER "/outside_older.so\" );\n";
    run = cluster_run_new(&shape);
    cluster_start_node(run, 0, meet, NULL);
    cluster_expect_end(run, 0, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, 0,
                        "'plugins': the plug-in " PLUGIN_FOLDER
                        "/outside_older.so was compiled for "
                        "version 1 of plug-ins, and this library has version " VERSION_TEXT
                        "; compile it with the headers of this library");
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
    tcase_add_test(tcase, plugins_of_the_cluster_file_bring_one_of_every_kind);
    tcase_add_test(tcase, plugin_of_another_version_is_refused_with_both_versions);
    return run_suite(suite);
}
