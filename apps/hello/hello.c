/* rubato-hello: the smallest complete program. Workers count to a hundred, together, in a table.
 *
 * In one process:   rubato-hello
 * On two nodes:     rubato run config/pair.cfg -- rubato-hello */
#include <rubato/rubato.h>

#include <locale.h>
#include <stdlib.h>

#include "apps/kit/report/app_output.h"

#define EXIT_USAGE 2

typedef struct {
    uint32_t iterations;
} Job;

/* What each worker runs. */
static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *job = user_data;
    const RubatoKey keys[] = { 1, 5, 42 };
    const float ones[] = { 1, 1, 1 };
    float seen[3];

    g_autoptr(RubatoKVTable) counts =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    if (counts == NULL)
        return false;
    for (uint32_t i = 0; i < job->iterations; i++)
        if (!rubato_kv_table_get(counts, keys, 3, seen, error) ||
            !rubato_kv_table_add(counts, keys, 3, ones, error) ||
            !rubato_kv_table_clock(counts, error))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Job job = { .iterations = 100 };
    const RubatoTableSpec counts = {
        .name = "counts",
        .dtype = RUBATO_F32,
        .width = 1,
        .n_keys = 1000,
        .storage = "dense",
        .model = "ssp",
        .staleness = 2,
    };
    const char *const tables[] = { "counts", NULL };
    const RubatoTask task = {
        .name = "count",
        .run = count,
        .user_data = &job,
        .tables = tables,
        .workers_per_node = 2,
    };
    const RubatoKey key = 42;
    float total;

    app_output_check_at_exit();
    setlocale(LC_CTYPE, ""); /* how text is encoded */
    g_autoptr(RubatoEngine) engine = rubato_engine_new_from_args(&argc, &argv, &error);
    if (engine != NULL && argc > 1) {
        g_printerr("rubato-hello: unexpected argument \"%s\"\n", argv[1]);
        g_printerr("Try \"rubato-hello --help\".\n");
        return EXIT_USAGE;
    }
    if (engine == NULL || !rubato_engine_create_table(engine, &counts, &error) ||
        !rubato_engine_run(engine, &task, &error) ||
        !rubato_engine_get(engine, "counts", &key, 1, &total, &error)) {
        g_printerr("rubato-hello: %s\n", error->message);
        return EXIT_FAILURE;
    }
    g_print("key 42: %.0f\n", (double)total); /* 200 on one node, 400 on two */
    return EXIT_SUCCESS;
}
