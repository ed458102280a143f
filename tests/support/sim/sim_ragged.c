/* Tables of ragged rows in a simulated cluster. All rows have one value for each worker, as those
 * of other tables have, so the same history judges them (sim_history.h). What differs is their way:
 * requests are calls of handlers, which carry a length for each key.
 *
 * Threads: as each function says in sim_cluster.h and sim_cluster_private.h. */
#include <rubato/ragged_table.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/sim/sim_cluster_private.h"

/* (transfer full) */
static uint32_t *lengths_of(uint32_t length, size_t n)
{
    uint32_t *const lengths = g_new(uint32_t, n);

    for (size_t i = 0; i < n; i++)
        lengths[i] = length;
    return lengths;
}

/* (transfer full) */
static RubatoKey *all_keys(const SimTable *table)
{
    RubatoKey *const keys = g_new(RubatoKey, table->n_keys);

    for (uint32_t i = 0; i < table->n_keys; i++)
        keys[i] = table->first_key + i;
    return keys;
}

static void check_lengths(const char *name, const RubatoKey *keys, size_t n,
                          const uint32_t *lengths, uint32_t expected)
{
    for (size_t i = 0; i < n; i++)
        if (lengths[i] != expected)
            sim_fail("table %s, key %" G_GUINT64_FORMAT ": it has %u values, and not %u", name,
                     keys[i], lengths[i], expected);
}

/* ---- between tasks ---- */

/* An add needs rows of its lengths: one node makes them, before others may add. */
static bool fill(SimNode *node, const SimScenario *scenario, const SimTable *table, GError **error)
{
    g_autofree RubatoKey *keys = all_keys(table);
    g_autofree uint32_t *lengths = lengths_of(scenario->n_workers, table->n_keys);
    g_autofree int64_t *zeros = g_new0(int64_t, (size_t)table->n_keys * scenario->n_workers);

    return rubato_engine_assign_ragged(node->engine, table->name, keys, table->n_keys, lengths,
                                       zeros, error);
}

bool sim_ragged_create(SimNode *node, const SimScenario *scenario, const SimTable *table,
                       GError **error)
{
    static const char *const models[] = { "asp", "bsp", "ssp" };
    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){
        .name = table->name,
        .dtype = RUBATO_I64,
        .shape = RUBATO_SHAPE_RAGGED,
        .storage = table->is_hash ? "hash" : "dense",
        .first_key = table->first_key,
        .n_keys = table->n_keys,
        .model = models[table->model],
        .staleness = table->staleness,
        .max_kept_bytes = table->model == SIM_MODEL_BSP ? table->max_kept_bytes : 0,
        .parts = table->parts,
        .partition = table->partition,
        .replicas = table->is_plain ? 0 : scenario->n_replicas,
    });

    TRY(rubato_engine_create_table(node->engine, &spec, error));
    TRY(node->number != scenario->scheduler || fill(node, scenario, table, error));
    return rubato_engine_barrier(node->engine, error);
}

bool sim_ragged_read(SimNode *node, const SimScenario *scenario, const SimTable *table,
                     int64_t *rows, GError **error)
{
    g_autofree RubatoKey *keys = all_keys(table);
    g_autofree uint32_t *lengths = lengths_of(0, table->n_keys);
    g_autofree void *values = NULL;

    TRY(rubato_engine_get_ragged(node->engine, table->name, keys, table->n_keys, lengths, &values,
                                 error));
    check_lengths(table->name, keys, table->n_keys, lengths, scenario->n_workers);
    memcpy(rows, values, (size_t)table->n_keys * scenario->n_workers * sizeof *rows);
    return true;
}

/* ---- in a task ---- */

bool sim_ragged_get(RubatoWorker *worker, RubatoRaggedTable *table, const SimRaggedCall *call,
                    int64_t *rows, GError **error)
{
    const size_t n_values = call->n * call->length;
    g_autofree uint32_t *lengths = lengths_of(0, call->n);
    g_autofree void *values = NULL;
    RubatoTicket ticket;

    if (!call->by_ticket) {
        TRY(rubato_ragged_table_get_into(table, call->keys, call->n, lengths, rows, n_values,
                                         error));
        check_lengths("of a worker", call->keys, call->n, lengths, call->length);
        return true;
    }
    ticket = rubato_ragged_table_get_async(table, call->keys, call->n, lengths, &values,
                                           &call->options, error);
    TRY(ticket != 0 && rubato_worker_wait(worker, ticket, error));
    check_lengths("of a worker", call->keys, call->n, lengths, call->length);
    memcpy(rows, values, n_values * sizeof *rows);
    return true;
}

bool sim_ragged_add(RubatoRaggedTable *table, const SimRaggedCall *call, const int64_t *deltas,
                    GError **error)
{
    g_autofree uint32_t *lengths = lengths_of(call->length, call->n);

    return call->by_ticket
               ? rubato_ragged_table_add_async(table, call->keys, call->n, lengths, deltas,
                                               &call->options, error) != 0
               : rubato_ragged_table_add(table, call->keys, call->n, lengths, deltas, error);
}

bool sim_ragged_append(RubatoRaggedTable *table, uint64_t list, uint64_t number, GError **error)
{
    const RubatoKey key = SIM_UNREAD_KEY + list;
    int64_t values[20];
    const uint32_t length = 1 + (uint32_t)(number / SIM_UNREAD_LISTS % G_N_ELEMENTS(values));

    for (uint32_t i = 0; i < length; i++)
        values[i] = (int64_t)(number + i);
    return rubato_ragged_table_append(table, &key, 1, &length, values, error);
}
