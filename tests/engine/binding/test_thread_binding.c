/* Engines whose threads and rows are bound, on this machine's own cores. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/binding/core_claim.h"
#include "engine/binding/core_topology.h"
#include "engine/engine_private.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- who may run where ---- */

/* The processors of a thread of this process, as the system tells them: "0-1". (transfer full) */
static char *allowed_of(const char *task)
{
    g_autofree char *path = g_strdup_printf("/proc/self/task/%s/status", task);
    g_autofree char *text = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return g_strdup("?");
    const char *const at = strstr(text, "Cpus_allowed_list:");
    return at == NULL ? g_strdup("?") : g_strndup(at + 19, strcspn(at + 19, "\n"));
}

/* The same of the thread of that name. */
static char *allowed_of_name(const char *wanted)
{
    GDir *const tasks = g_dir_open("/proc/self/task", 0, NULL);
    char *found = NULL;

    for (const char *task; found == NULL && (task = g_dir_read_name(tasks)) != NULL;) {
        g_autofree char *path = g_strdup_printf("/proc/self/task/%s/comm", task);
        g_autofree char *name = NULL;

        if (g_file_get_contents(path, &name, NULL, NULL) && strcmp(g_strstrip(name), wanted) == 0)
            found = allowed_of(task);
    }
    g_dir_close(tasks);
    return found != NULL ? found : g_strdup("no such thread");
}

static char *own_allowed(void)
{
    g_autofree char *task = g_strdup_printf("%d", (int)gettid());

    return allowed_of(task);
}

/* That core's processors. */
static char *processors(const CoreTopology *topology, uint32_t core)
{
    return core_topology_processors(topology, &(CoreList){ &core, 1 });
}

/* As the system writes such a list, which is as hwloc does. */
static char *all_processors(const CoreTopology *topology)
{
    g_autofree uint32_t *cores = g_new(uint32_t, topology->n_cores);

    for (uint32_t i = 0; i < topology->n_cores; i++)
        cores[i] = i;
    return core_topology_processors(topology, &(CoreList){ cores, topology->n_cores });
}

static bool note_allowed(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)error;
    ((char **)user_data)[rubato_worker_local_rank(worker)] = own_allowed();
    return true;
}

static RubatoEngine *bound_engine(const RubatoEngineConfig *config)
{
    g_autoptr(GError) error = NULL;
    RubatoEngine *const engine = rubato_engine_new(config, &error);

    ck_assert_msg(engine != NULL, "%s", error != NULL ? error->message : "");
    return engine;
}

START_TEST(each_server_has_a_core_and_workers_have_the_others)
{
    g_autoptr(CoreTopology) topology = core_topology_read(NULL);
    g_autofree char *all = all_processors(topology);
    g_autofree char *first = processors(topology, 0);
    g_autofree char *before = own_allowed();
    RubatoEngine *engine =
        bound_engine(&(RubatoEngineConfig){ .servers = 1, .workers = 1, .bind_cores = true });
    g_autofree char *server = allowed_of_name("server 0");
    g_autofree char *helper = allowed_of_name("helper");
    g_autofree char *after = own_allowed();
    char *workers[2] = { NULL };

    ck_assert_str_eq(server, first);
    ck_assert_str_eq(helper, all);
    ck_assert_str_eq(after, before); /* the caller's own thread is as it was */
    ck_assert_ptr_nonnull(strstr(rubato_engine_binding(engine), "server 0 on processor"));
    run_ok(engine, 1, note_allowed, workers, NULL);
    if (topology->n_cores > 1)
        ck_assert_msg(strcmp(workers[0], first) != 0 && strcmp(workers[0], all) != 0, "%s",
                      workers[0]);
    g_free(workers[0]);
    /* a task may have more workers than the plan knew of */
    run_ok(engine, 2, note_allowed, workers, NULL);
    ck_assert_str_eq(workers[1], all);
    g_free(workers[0]);
    g_free(workers[1]);
    rubato_engine_free(engine);
}
END_TEST

/* A second one is told so, whatever has made it think that the cores are its own. */
START_TEST(an_engine_claims_the_processors_of_its_threads)
{
    g_autoptr(CoreTopology) topology = core_topology_read(NULL);
    g_autofree char *all = all_processors(topology);
    g_autofree char *path = core_claim_path();
    g_autofree char *taken = NULL;
    RubatoEngine *engine =
        bound_engine(&(RubatoEngineConfig){ .servers = 1, .workers = 1, .bind_cores = true });

    CoreClaim *const second = core_claim_new(path, all, &taken);

    if (second == NULL)
        printf("skipped: %s cannot be used here\n", path);
    else
        ck_assert_msg(g_strcmp0(taken, all) == 0, "%s", taken != NULL ? taken : "none");
    core_claim_free(second);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(no_thread_runs_where_the_process_may_not)
{
    cpu_set_t one;
    unsigned last = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof one, &one), 0);
    for (unsigned i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &one))
            last = i;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);

    g_autofree char *only = g_strdup_printf("%u", last);
    RubatoEngine *engine =
        bound_engine(&(RubatoEngineConfig){ .servers = 2, .workers = 2, .bind_cores = true });
    char *workers[2] = { NULL };

    ck_assert_ptr_nonnull(strstr(rubato_engine_binding(engine), "2 servers share 1 core"));
    run_ok(engine, 2, note_allowed, workers, NULL);
    for (int i = 0; i < 2; i++) {
        g_autofree char *name = g_strdup_printf("server %d", i);
        g_autofree char *server = allowed_of_name(name);

        ck_assert_str_eq(server, only);
        ck_assert_str_eq(workers[i], only);
        g_free(workers[i]);
    }
    rubato_engine_free(engine);
}
END_TEST

START_TEST(without_the_flag_nothing_is_bound)
{
    g_autofree char *before = own_allowed();
    RubatoEngine *engine = engine_with_servers(2);
    g_autofree char *server = allowed_of_name("server 1");
    char *workers[1] = { NULL };

    run_ok(engine, 1, note_allowed, workers, NULL);
    ck_assert_str_eq(server, before);
    ck_assert_str_eq(workers[0], before);
    ck_assert_ptr_null(rubato_engine_binding(engine));
    ck_assert_ptr_null(engine->servers[0].home);
    g_free(workers[0]);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(what_cannot_be_bound_is_refused)
{
    g_autoptr(GError) error = NULL;

    g_setenv("HWLOC_SYNTHETIC", "core:64 pu:1", TRUE);
    g_setenv("HWLOC_THISSYSTEM", "0", TRUE);
    ck_assert_ptr_null(rubato_engine_new(&(RubatoEngineConfig){ .bind_cores = true }, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "bind_cores", "made up", NULL);
}
END_TEST

/* ---- rows ---- */

/* The mappings of this process that have a policy: numa_maps says "prefer:0", or
 * "prefer (many):0". SIZE_MAX: the system does not tell. */
static size_t count_placed(void)
{
    g_autofree char *text = NULL;
    size_t n = 0;

    if (!g_file_get_contents("/proc/self/numa_maps", &text, NULL, NULL))
        return SIZE_MAX;
    for (const char *at = text; (at = strstr(at, " prefer")) != NULL; at++)
        n++;
    return n;
}

static bool fill(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N = 1000, TURNS = 100 };
    float ones[N];

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    TRY(table != NULL);
    for (RubatoKey turn = 0; turn < TURNS; turn++)
        TRY(rubato_kv_table_add_range(table, turn * N, N, ones, error));
    return true;
}

START_TEST(rows_lie_in_the_numa_nodes_of_their_servers)
{
    static const RubatoTableSpec tables[] = {
        { .name = "t", .n_keys = 1000000 },
        { .name = "t", .storage = "hash" },
        { .name = "t", .storage = "hash", .max_bytes = 64 << 20 },
    };
    const RubatoKey key = 42;
    g_autoptr(GError) error = NULL;
    float value = 0;
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .numa = true }, &error);

    if (engine == NULL) { /* as in a container that may not */
        check_error(&error, RUBATO_ERROR_INVALID, "numa", NULL);
        return;
    }
    ck_assert_ptr_nonnull(strstr(rubato_engine_binding(engine), "NUMA nodes of their servers"));
    const size_t before = count_placed();
    create_table(engine, &tables[_i]);
    run_ok(engine, 1, fill, NULL, "t");
    if (before != SIZE_MAX)
        ck_assert_msg(count_placed() > before, "no mapping has a policy");
    ck_assert(rubato_engine_get(engine, "t", &key, 1, &value, NULL) && value == 1);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thread_binding");
    TCase *tcase = tcase_create("thread_binding");
    g_autoptr(GError) error = NULL;
    CoreTopology *const topology = core_topology_read(&error);

    if (topology == NULL) {
        printf("skipped: %s\n", error->message);
        return TEST_SKIPPED;
    }
    core_topology_free(topology);
    tcase_add_test(tcase, each_server_has_a_core_and_workers_have_the_others);
    tcase_add_test(tcase, an_engine_claims_the_processors_of_its_threads);
    tcase_add_test(tcase, no_thread_runs_where_the_process_may_not);
    tcase_add_test(tcase, without_the_flag_nothing_is_bound);
    tcase_add_test(tcase, what_cannot_be_bound_is_refused);
    tcase_add_loop_test(tcase, rows_lie_in_the_numa_nodes_of_their_servers, 0, 3);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
