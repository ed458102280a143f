/* Rounds of Adds that the rows count.
 *
 * Threads: inside a node, the one that calls. */
#include "tests/support/cluster/counted_rounds.h"

#include <stdatomic.h>
#include <string.h>

#include "tests/support/cluster/counted_lists.h"
#include "tests/support/engine/engine_fixture.h"

enum { BUSY = 5 };

static atomic_int stops;

void counted_rounds_stop(int number)
{
    (void)number;
    atomic_store(&stops, 1);
}

static bool work(RubatoWorker *worker, void *data, GError **error)
{
    const CountedRounds *const job = data;
    const RubatoKey rounds_key = COUNTED_KEYS;
    int64_t ones[COUNTED_KEYS], rows[COUNTED_KEYS], rounds = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->table, RUBATO_I64, error);
    const bool has_lists = job->lists_model != NULL;
    const bool is_bsp = has_lists && strcmp(job->lists_model, "bsp") == 0;
    g_autoptr(RubatoRaggedTable) lists =
        table == NULL || !has_lists ? NULL : counted_lists_open(worker, error);

    TRY(table != NULL && (lists != NULL || !has_lists));
    for (size_t i = 0; i < COUNTED_KEYS; i++)
        ones[i] = 1;
    for (; job->most > 0 ? rounds < job->most : atomic_load(&stops) == 0; rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, COUNTED_KEYS, ones, error) &&
            rubato_kv_table_get_range(table, 0, COUNTED_KEYS, rows, error));
        for (size_t i = 0; i < COUNTED_KEYS; i++)
            EXPECT(rows[i] >= rounds,
                   "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
                   rounds);
        TRY(lists == NULL || (counted_lists_round(worker, lists, is_bsp, rounds, error) &&
                              rubato_ragged_table_clock(lists, error)));
        TRY(rubato_kv_table_clock(table, error));
        TRY(job->after_clock == NULL || job->after_clock(worker, rounds, error));
        if (rounds == BUSY)
            cluster_say("busy");
    }
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error);
}

bool counted_rounds_check(RubatoEngine *engine, const char *table, GError **error)
{
    int64_t rows[COUNTED_KEYS + 1];

    TRY(rubato_engine_get_range(engine, table, 0, COUNTED_KEYS + 1, rows, error));
    for (size_t i = 0; i < COUNTED_KEYS; i++)
        EXPECT(rows[i] == rows[COUNTED_KEYS],
               "table %s, key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", table,
               i, rows[i], rows[COUNTED_KEYS]);
    return true;
}

bool counted_rounds_play(RubatoEngine *engine, const CountedRounds *rounds, GError **error)
{
    const bool has_lists = rounds->lists_model != NULL;
    const char *const tables[] = { rounds->table, has_lists ? COUNTED_LISTS : NULL, NULL };
    CountedRounds job = *rounds;

    return cluster_run_task(engine, job.table, work, &job, tables, error) &&
           counted_rounds_check(engine, job.table, error) &&
           (!has_lists || counted_lists_check(engine, error));
}
