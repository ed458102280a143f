/* Snapshots of clusters: each node writes its parts, and another number of nodes and servers reads
 * them. What goes wrong on one node is told on all, and leaves the last good snapshot. */
#include <rubato/stream.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"
#include "tests/support/store/three_tables.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-snapshot-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static const ClusterShape three_nodes = { .n_nodes = 3,
                                          .nodes = { { 2, 1 }, { 1, 2 }, { 0, 1 } },
                                          .scheduler = 2 };
static const ClusterShape two_nodes = { .n_nodes = 2, .nodes = { { 1, 1 }, { 2, 1 } } };

typedef struct {
    ThreeShapes shapes;
    uint32_t wrong; /* the node on which something is wrong; else UINT32_MAX */
} Scene;

static bool is_first(const RubatoEngine *engine)
{
    return rubato_engine_node(engine) == CLUSTER_IDS[0];
}

static void run_all(const ClusterShape *shape, ClusterPlay play, const Scene *scene)
{
    ClusterRun *run = cluster_run_new(shape);

    cluster_start(run, play, scene);
    cluster_expect_success(run);
    cluster_run_free(run);
}

static bool write_one(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const RubatoSnapshotSpec spec = { .directory = directory, .packing = RUBATO_PACKING_ZSTD };
    uint64_t number = 0;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        (is_first(engine) && !three_tables_fill(engine, error)) ||
        !rubato_engine_barrier(engine, error) ||
        !rubato_engine_snapshot(engine, &spec, &number, error))
        return false;
    EXPECT(number == 1, "the number is %u", (unsigned)number);
    return true;
}

static bool read_one(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    uint64_t number = 0;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        !rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, &number,
                               error))
        return false;
    EXPECT(number == 1, "the number is %u", (unsigned)number);
    return !is_first(engine) || three_tables_check(engine, &scene->shapes, error);
}

START_TEST(snapshot_of_three_nodes_is_read_by_others)
{
    run_all(&three_nodes, write_one, &(Scene){ .shapes = { .parts = 7 } });
    run_all(&three_nodes, read_one, &(Scene){ .shapes = { .parts = 7 } });
    run_all(&two_nodes, read_one, &(Scene){ .shapes = { .parts = 0, .is_double = true } });
    g_free(cluster_play_alone(2, 1, read_one, &(Scene){ .shapes = { .parts = 4 } }));
}
END_TEST

/* One node names another directory: a place where nothing can be made, or another good one. */
static bool write_apart(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const bool is_wrong = rubato_engine_node(engine) == CLUSTER_IDS[scene->wrong];
    g_autofree char *elsewhere = g_strconcat(directory, "-elsewhere", NULL);
    const RubatoSnapshotSpec spec = { .directory = is_wrong ? elsewhere : directory };
    GError *found = NULL;

    if (!three_tables_create(engine, &scene->shapes, error))
        return false;
    EXPECT(!rubato_engine_snapshot(engine, &spec, NULL, &found), "nodes that disagree");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "-elsewhere", error) &&
           rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                  error);
}

START_TEST(nodes_that_name_two_directories_are_told_so)
{
    run_all(&two_nodes, write_apart, &(Scene){ .wrong = 1 });
}
END_TEST

/* The directory turns into a file between two snapshots. */
static bool write_nowhere(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    g_autofree char *place = g_build_filename(directory, "file", NULL);
    const RubatoSnapshotSpec good = { .directory = directory }, bad = { .directory = place };
    g_autofree uint64_t *numbers = NULL;
    GError *found = NULL;
    size_t n;

    if (!three_tables_create(engine, &scene->shapes, error) ||
        !rubato_engine_snapshot(engine, &good, NULL, error))
        return false;
    if (is_first(engine) && !g_file_set_contents(place, "x", 1, error))
        return false;
    if (!rubato_engine_barrier(engine, error))
        return false;
    EXPECT(!rubato_engine_snapshot(engine, &bad, NULL, &found), "a file is no directory");
    if (!cluster_expect_error(&found, RUBATO_ERROR_IO, place, error) ||
        !rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    EXPECT(n == 1, "%zu snapshots", n);
    return rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                 error);
}

START_TEST(failure_on_a_node_is_told_on_all)
{
    run_all(&three_nodes, write_nowhere, &(Scene){ .wrong = UINT32_MAX });
}
END_TEST

static bool add_one(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    const float one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_F32, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, &key, 1, &one, error);
}

/* On the node with worker 0 the run ends when the last version is there. So that node holds the
 * lock; the scheduler's, which has no worker, knows nothing of that version. */
static bool stream_one(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "n", NULL };
    g_autofree char *uri = g_strconcat("file:", directory, NULL);
    g_autofree char *lock = g_build_filename(directory, ".writer", NULL);
    g_autofree char *self = g_strdup_printf("process %ld on ", (long)getpid());
    const RubatoTaskStream stream = { .uri = uri };
    const RubatoTask task = { .name = "add", .run = add_one, .tables = tables, .stream = &stream };
    g_autofree uint64_t *numbers = NULL;
    g_autofree char *holder = NULL;
    size_t n;

    (void)data;
    if (!rubato_engine_create_table(engine, &(RubatoTableSpec){ .name = "n", .n_keys = 4 },
                                    error) ||
        !rubato_engine_run(engine, &task, error))
        return false;
    if (is_first(engine))
        return true;
    if (!rubato_snapshot_list(directory, &numbers, &n, error) ||
        !g_file_get_contents(lock, &holder, NULL, error))
        return false;
    EXPECT(n == 1, "%zu versions", n);
    EXPECT(g_str_has_prefix(holder, self), "the lock is held by %s", holder);
    return true;
}

START_TEST(node_that_waits_for_the_last_version_holds_the_lock)
{
    run_all(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 0 }, { 1, 1 } } }, stream_one, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots of clusters");
    TCase *cases = cluster_add_case(suite, "snapshots");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, snapshot_of_three_nodes_is_read_by_others);
    tcase_add_test(cases, nodes_that_name_two_directories_are_told_so);
    tcase_add_test(cases, failure_on_a_node_is_told_on_all);
    tcase_add_test(cases, node_that_waits_for_the_last_version_holds_the_lock);
    return run_suite(suite);
}
