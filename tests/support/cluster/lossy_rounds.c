#include "tests/support/cluster/lossy_rounds.h"

#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <string.h>

#include "tests/support/cluster/counted_lists.h"
#include "tests/support/engine/engine_fixture.h"

enum { BUSY = 5, MORE = 20 }; /* rounds before "busy" is said, and after the last loss */

/* Every so many rounds a call fails on part 0, or is so long that it takes several messages. */
enum { FAILS_EVERY = 3, LONG_EVERY = 8, LONG_BYTES = 600000 };

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

/* ---- the handler ---- */

static bool run_bump(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const bool fails = rubato_read_u32(arguments) != 0;
    RubatoPartRows rows;

    (void)result;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            ++*(int64_t *)rubato_part_rows_row(&rows, i);
    if (!fails || rubato_part_number(part) != 0)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it was to fail");
    return false;
}

void lossy_rounds_register(void)
{
    static const RubatoHandlerOps bump = { .name = "bump",
                                           .access = RUBATO_ACCESS_WRITES,
                                           .run = run_bump };

    if (!rubato_register_handler(&bump, NULL))
        g_error("no handler could be registered");
}

/* Counts a failure that is the handler's own. */
static bool count_failure(GError *found, int64_t *n_told, GError **error)
{
    if (g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_HANDLER) &&
        strstr(found->message, "it was to fail") != NULL) {
        ++*n_told;
        g_error_free(found);
        return true;
    }
    g_propagate_error(error, found);
    return false;
}

static bool call_bump(RubatoWorker *worker, const LossyRounds *job, int64_t round, int64_t *n_told,
                      GError **error)
{
    const uint32_t fails = round % FAILS_EVERY == 0;
    const size_t n_bytes = round % LONG_EVERY == 0 ? LONG_BYTES : sizeof fails;
    g_autofree RubatoKey *keys = g_new(RubatoKey, job->n_keys);
    g_autofree char *arguments = g_malloc0(n_bytes);
    const RubatoHandlerCall call = { .table = job->spec->name,
                                     .handler = "bump",
                                     .arguments = arguments,
                                     .n_argument_bytes = n_bytes,
                                     .scope = RUBATO_SCOPE_KEYS,
                                     .keys = keys,
                                     .n_keys = job->n_keys };
    GError *found = NULL;

    memcpy(arguments, &fails, sizeof fails);
    for (uint32_t i = 0; i < job->n_keys; i++)
        keys[i] = i;
    return rubato_worker_call_handler(worker, &call, NULL, &found) ||
           count_failure(found, n_told, error);
}

/* A clock may tell of one call that has failed, and has not been made then. */
static bool clock_on(RubatoKVTable *table, int64_t *n_told, GError **error)
{
    GError *found = NULL;

    while (!rubato_kv_table_clock(table, &found)) {
        TRY(count_failure(found, n_told, error));
        found = NULL;
    }
    return true;
}

/* ---- the rounds ---- */

bool lossy_rounds_work(RubatoWorker *worker, void *data, GError **error)
{
    const LossyRounds *const job = data;
    const size_t n_keys = job->n_keys;
    const bool sees_own = strcmp(job->spec->model, "bsp") != 0;
    const RubatoKey rounds_key = n_keys;
    g_autofree int64_t *ones = g_new(int64_t, n_keys), *rows = g_new(int64_t, n_keys);
    const int64_t n_each = job->calls ? 2 : 1;
    int64_t rounds = 0, n_told = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->spec->name, RUBATO_I64, error);
    g_autoptr(RubatoRaggedTable) lists =
        table == NULL || !job->lists ? NULL : counted_lists_open(worker, error);

    TRY(table != NULL && (lists != NULL || !job->lists));
    for (size_t i = 0; i < n_keys; i++)
        ones[i] = 1;
    for (int more = 0; more < MORE; more += are_lost(job), rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, n_keys, ones, error) &&
            (!job->calls || call_bump(worker, job, rounds, &n_told, error)) &&
            rubato_kv_table_get_range(table, 0, n_keys, rows, error));
        for (size_t i = 0; i < n_keys; i++)
            EXPECT(rows[i] >= n_each * (rounds + sees_own),
                   "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
                   rounds);
        TRY(lists == NULL || (counted_lists_round(worker, lists, !sees_own, rounds, error) &&
                              rubato_ragged_table_clock(lists, error)));
        TRY(clock_on(table, &n_told, error));
        if (rounds == BUSY)
            cluster_say("busy");
    }
    TRY(clock_on(table, &n_told, error) && clock_on(table, &n_told, error));
    const int64_t n_failed = job->calls ? (rounds + FAILS_EVERY - 1) / FAILS_EVERY : 0;
    EXPECT(n_told == n_failed, "%" G_GINT64_FORMAT " failures were told, and not %" G_GINT64_FORMAT,
           n_told, n_failed);
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error);
}

bool lossy_rounds_create(LossyRounds *job, const char *tables[LOSSY_TABLES], GError **error)
{
    tables[0] = job->spec->name;
    tables[1] = job->lists ? COUNTED_LISTS : NULL;
    tables[2] = NULL;
    return rubato_engine_create_table(job->engine, job->spec, error) &&
           (!job->lists || counted_lists_create(job->engine, job->spec, error));
}

bool lossy_rounds_play(LossyRounds *job, int64_t *n_rounds, GError **error)
{
    const char *tables[LOSSY_TABLES];

    return lossy_rounds_create(job, tables, error) &&
           cluster_run_task(job->engine, "work", lossy_rounds_work, job, tables, error) &&
           lossy_rounds_check(job, n_rounds, error);
}

bool lossy_rounds_check(LossyRounds *job, int64_t *n_rounds, GError **error)
{
    g_autofree int64_t *rows = g_new(int64_t, job->n_keys + 1);

    TRY(rubato_engine_get_range(job->engine, job->spec->name, 0, job->n_keys + 1, rows, error));
    for (size_t i = 0; i < job->n_keys; i++)
        EXPECT(rows[i] == rows[job->n_keys] * (job->calls ? 2 : 1),
               "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
               rows[job->n_keys]);
    if (n_rounds != NULL)
        *n_rounds = rows[job->n_keys];
    return !job->lists || counted_lists_check(job->engine, error);
}
