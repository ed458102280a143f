#include "tests/support/cluster/lossy_rounds.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

enum { BUSY = 5, MORE = 20 }; /* rounds before "busy" is said, and after the last loss */

const LossyCase lossy_cases[] = {
    { "shm", { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = LOSSY_KEYS + 1 } },
    { "tcp", { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" } },
    { "tcp",
      { .name = "rows",
        .model = "ssp",
        .staleness = 2,
        .dtype = RUBATO_I64,
        .n_keys = LOSSY_KEYS + 1 } },
};

bool cluster_is_lost(RubatoEngine *engine, uint32_t node)
{
    size_t n;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    const bool is_lost = states[node].is_lost;

    rubato_node_states_free(states, n);
    return is_lost;
}

static bool are_lost(const LossyRounds *rounds)
{
    bool are_lost = true;

    for (uint32_t i = 0; i < rounds->n_victims && are_lost; i++)
        are_lost = cluster_is_lost(rounds->engine, rounds->victims[i]);
    return are_lost;
}

bool lossy_rounds_work(RubatoWorker *worker, void *data, GError **error)
{
    const LossyRounds *const job = data;
    const size_t n_keys = job->n_keys;
    const bool sees_own = strcmp(job->spec->model, "bsp") != 0;
    const RubatoKey rounds_key = n_keys;
    g_autofree int64_t *ones = g_new(int64_t, n_keys), *rows = g_new(int64_t, n_keys);
    int64_t rounds = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->spec->name, RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < n_keys; i++)
        ones[i] = 1;
    for (int more = 0; more < MORE; more += are_lost(job), rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, n_keys, ones, error) &&
            rubato_kv_table_get_range(table, 0, n_keys, rows, error));
        for (size_t i = 0; i < n_keys; i++)
            EXPECT(rows[i] >= rounds + sees_own,
                   "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
                   rounds);
        TRY(rubato_kv_table_clock(table, error));
        if (rounds == BUSY)
            cluster_say("busy");
    }
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error);
}

bool lossy_rounds_play(LossyRounds *job, int64_t *n_rounds, GError **error)
{
    const char *const name = job->spec->name;
    const char *const tables[] = { name, NULL };

    return rubato_engine_create_table(job->engine, job->spec, error) &&
           cluster_run_task(job->engine, "work", lossy_rounds_work, job, tables, error) &&
           lossy_rounds_check(job, n_rounds, error);
}

bool lossy_rounds_check(LossyRounds *job, int64_t *n_rounds, GError **error)
{
    g_autofree int64_t *rows = g_new(int64_t, job->n_keys + 1);

    TRY(rubato_engine_get_range(job->engine, job->spec->name, 0, job->n_keys + 1, rows, error));
    for (size_t i = 0; i < job->n_keys; i++)
        EXPECT(rows[i] == rows[job->n_keys],
               "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
               rows[job->n_keys]);
    if (n_rounds != NULL)
        *n_rounds = rows[job->n_keys];
    return true;
}
