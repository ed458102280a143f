#include "tests/support/cluster/cluster_rows.h"
#include "tests/support/engine/fitting_spec.h"

bool cluster_create_rows(RubatoEngine *engine, const char *name, const char *model, GError **error)
{
    const RubatoTableSpec spec = fitting_spec(
        (RubatoTableSpec){ .name = name, .n_keys = CLUSTER_ROWS, .model = model, .staleness = 1 });

    return rubato_engine_create_table(engine, &spec, error);
}

bool cluster_expect_rows(RubatoEngine *engine, const char *table, float expected, GError **error)
{
    float values[CLUSTER_ROWS];

    if (!rubato_engine_get_range(engine, table, 0, CLUSTER_ROWS, values, error))
        return false;
    for (int i = 0; i < CLUSTER_ROWS; i++)
        EXPECT(values[i] == expected, "table %s: key %d is %g, expected %g", table, i,
               (double)values[i], (double)expected);
    return true;
}

bool cluster_add_ones(RubatoWorker *worker, const char *name, uint32_t n_clocks, GError **error)
{
    float ones[CLUSTER_ROWS];
    float values[CLUSTER_ROWS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, name, RUBATO_F32, error);

    if (table == NULL)
        return false;
    for (int i = 0; i < CLUSTER_ROWS; i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < n_clocks; i++)
        if (!rubato_kv_table_get_range(table, 0, CLUSTER_ROWS, values, error) ||
            !rubato_kv_table_add_range(table, 0, CLUSTER_ROWS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}
