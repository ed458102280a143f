/* How long each worker waited, and how stale its rows were: for the result card.
 *
 * At its end each worker writes its figures to a table with a row for each worker; the reporting
 * node reads them when the task has ended.
 *
 * Threads: app_waits_tell from the worker; all others from main. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_WAITS_H
#define RUBATO_APPS_KIT_REPORT_APP_WAITS_H

#include <json-glib/json-glib.h>
#include <rubato/rubato.h>

/* The table; the task has to name it among its own. */
#define APP_WAITS "app-waits"

/* All zero: no worker has written its figures. */
typedef struct {
    uint32_t n_workers;
    RubatoWorkerStats *workers; /* by rank */
} AppWaits;

/* For the program to create, before each task. */
RubatoTableSpec app_waits_table(void);

/* The worker's last call: tells what it did on these tables (a list ended by NULL), and in
 * barriers. */
bool app_waits_tell(RubatoWorker *worker, const char *const *tables, GError **error);

/* Reads what n_workers workers told, and adds it to what they told in earlier tasks. */
bool app_waits_read(AppWaits *waits, RubatoEngine *engine, uint32_t n_workers, GError **error);
void app_waits_clear(AppWaits *waits);

/* Two lines of the card, and four members of the JSON: "waits", the seconds of each worker, and
 * "staleness_seen", "staleness_mean" and "staleness_most", of the Gets of all workers: how many had
 * which staleness, the mean, the highest. Nothing if no worker has written its figures. */
void app_waits_add_text(const AppWaits *waits, GString *text);
void app_waits_add_json(const AppWaits *waits, JsonBuilder *builder);

#endif
