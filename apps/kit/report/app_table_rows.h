/* How many rows the tables of a model have, and how many were left out, evicted or removed: for the
 * result card. Only of tables that forget, by max_bytes, admit or expire.
 *
 * Each node adds its servers' counts to a table, from which the reporting node reads the sums.
 *
 * Threads: main. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_TABLE_ROWS_H
#define RUBATO_APPS_KIT_REPORT_APP_TABLE_ROWS_H

#include <json-glib/json-glib.h>
#include <rubato/rubato.h>

typedef struct {
    const char *table; /* the model's */
    RubatoTableStats sum;
} AppTableRows;

/* Appends the sums of a table over all nodes to counts (of AppTableRows), unless it keeps all its
 * rows. Collective, between tasks. */
bool app_table_rows_count(GArray *counts, RubatoEngine *engine, const char *name,
                          const RubatoTableSpec *spec, GError **error);

/* A line of the card for each table, and the member "tables" of the JSON. Nothing if there are
 * none, or NULL. */
void app_table_rows_add_text(const GArray *counts, GString *text);
void app_table_rows_add_json(const GArray *counts, JsonBuilder *builder);

#endif
