/* A status as tables, for eyes.
 *
 * Threads: any; one at a time for each StatusRates. */
#ifndef APPS_RUBATO_STATUS_STATUS_TABLE_H
#define APPS_RUBATO_STATUS_STATUS_TABLE_H

#include "apps/rubato/status/status_json.h"

/* What was printed before, so that rates are those since then. */
typedef struct StatusRates StatusRates;

/* (transfer full) */
StatusRates *status_rates_new(void);
void status_rates_free(StatusRates *rates);

/* Appends the tables of a status. Rates are those since the picture before that was appended with
 * the same `rates`; of a reader that was not in it, since it was opened. */
void status_table_append(JsonObject *status, StatusRates *rates, GString *text);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(StatusRates, status_rates_free)

#endif
