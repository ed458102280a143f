/* Sums over nodes of what the tables of a model hold and have forgotten, and their lines of the
 * card. Runs on main's thread. */
#include "apps/kit/report/app_table_rows.h"

#include <string.h>

#include "apps/kit/app.h"
#include "apps/kit/report/app_progress.h"

#define COUNTS "app-table-rows"

/* In the order of the row of COUNTS. */
static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    { "rows", offsetof(RubatoTableStats, n_rows) },
    { "bytes", offsetof(RubatoTableStats, n_bytes) },
    { "admitted", offsetof(RubatoTableStats, n_admitted) },
    { "refused", offsetof(RubatoTableStats, n_refused) },
    { "evicted", offsetof(RubatoTableStats, n_evicted) },
    { "expired", offsetof(RubatoTableStats, n_expired) },
};

static bool sum_up(RubatoEngine *engine, const char *table, RubatoTableStats *sum, GError **error)
{
    const RubatoKey key = 0;
    int64_t counts[G_N_ELEMENTS(fields)];
    RubatoTableStats own;

    if (!rubato_engine_table_stats(engine, table, &own, error))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        counts[i] = (int64_t)G_STRUCT_MEMBER(uint64_t, &own, fields[i].offset);
    if (!rubato_engine_add(engine, COUNTS, &key, 1, counts, error) ||
        !rubato_engine_barrier(engine, error) ||
        !rubato_engine_get(engine, COUNTS, &key, 1, counts, error))
        return false;
    *sum = own;
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        G_STRUCT_MEMBER(uint64_t, sum, fields[i].offset) = (uint64_t)counts[i];
    return true;
}

bool app_table_rows_count(GArray *counts, RubatoEngine *engine, const char *name,
                          const RubatoTableSpec *spec, GError **error)
{
    const RubatoTableSpec board = {
        .name = COUNTS, .dtype = RUBATO_I64, .width = G_N_ELEMENTS(fields), .storage = "hash"
    };
    AppTableRows rows = { .table = name };

    if (spec->max_bytes == 0 && spec->admit == NULL && spec->expire == NULL)
        return true;
    if (!rubato_engine_create_table(engine, &board, error) ||
        !sum_up(engine, name, &rows.sum, error) ||
        !rubato_engine_drop_table(engine, COUNTS, error)) /* all nodes have read it */
        return false;
    g_array_append_val(counts, rows);
    return true;
}

void app_table_rows_add_text(const GArray *counts, GString *text)
{
    for (guint i = 0; counts != NULL && i < counts->len; i++) {
        const AppTableRows *rows = &g_array_index(counts, AppTableRows, i);

        g_string_append_printf(text, "  %-14s ", rows->table);
        for (size_t j = 0; j < G_N_ELEMENTS(fields); j++) {
            const uint64_t n = G_STRUCT_MEMBER(uint64_t, &rows->sum, fields[j].offset);
            char number[32];

            app_format_count(n, number, sizeof number);
            g_string_append_printf(text, "%s%s %s", j == 0 ? "" : ", ", number, fields[j].name);
        }
        g_string_append_c(text, '\n');
    }
}

void app_table_rows_add_json(const GArray *counts, JsonBuilder *builder)
{
    if (counts == NULL || counts->len == 0)
        return;
    json_builder_set_member_name(builder, "tables");
    json_builder_begin_object(builder);
    for (guint i = 0; i < counts->len; i++) {
        const AppTableRows *rows = &g_array_index(counts, AppTableRows, i);

        json_builder_set_member_name(builder, rows->table);
        json_builder_begin_object(builder);
        for (size_t j = 0; j < G_N_ELEMENTS(fields); j++) {
            json_builder_set_member_name(builder, fields[j].name);
            json_builder_add_int_value(
                builder, (gint64)G_STRUCT_MEMBER(uint64_t, &rows->sum, fields[j].offset));
        }
        json_builder_end_object(builder);
    }
    json_builder_end_object(builder);
}
