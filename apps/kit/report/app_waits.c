/* Collects the workers' RubatoWorkerStats and puts them on the card. A row of the table is a
 * worker's stats as they stand, since all their members are 64 bits wide. */
#include "apps/kit/report/app_waits.h"

#include <string.h>

#define ROW_WIDTH (sizeof(RubatoWorkerStats) / sizeof(int64_t))
#define WORKERS_SHOWN 8   /* on the text card; of more, the range */
#define STALENESS_SHOWN 8 /* the same; of staler Gets, the mean and the most */

RubatoTableSpec app_waits_table(void)
{
    return (RubatoTableSpec){
        .name = APP_WAITS, .dtype = RUBATO_I64, .width = ROW_WIDTH, .storage = "hash"
    };
}

bool app_waits_tell(RubatoWorker *worker, const char *const *tables, GError **error)
{
    g_autoptr(RubatoKVTable) board =
        rubato_worker_open_kv_table(worker, APP_WAITS, RUBATO_I64, error);
    const RubatoKey rank = rubato_worker_rank(worker);
    RubatoWorkerStats all, stats, sum = { 0 };

    if (board == NULL || !rubato_worker_stats(worker, NULL, &all, error))
        return false;
    for (; tables != NULL && *tables != NULL; tables++) {
        if (!rubato_worker_stats(worker, *tables, &stats, error))
            return false;
        rubato_worker_stats_add(&sum, &stats);
    }
    sum.n_barriers = all.n_barriers;
    sum.barrier_wait_ns = all.barrier_wait_ns;
    return rubato_kv_table_add(board, &rank, 1, &sum, error);
}

bool app_waits_read(AppWaits *waits, RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    g_autofree RubatoWorkerStats *workers = g_new0(RubatoWorkerStats, n_workers);

    if (!rubato_engine_get_range(engine, APP_WAITS, 0, n_workers, workers, error))
        return false;
    for (uint32_t i = 0; i < MIN(n_workers, waits->n_workers); i++)
        rubato_worker_stats_add(&workers[i], &waits->workers[i]);
    app_waits_clear(waits);
    waits->n_workers = n_workers;
    waits->workers = g_steal_pointer(&workers);
    return true;
}

void app_waits_clear(AppWaits *waits)
{
    g_clear_pointer(&waits->workers, g_free);
    waits->n_workers = 0;
}

static double seconds_of(const RubatoWorkerStats *worker)
{
    return (double)(worker->get_wait_ns + worker->send_wait_ns + worker->barrier_wait_ns) * 1e-9;
}

static RubatoWorkerStats add_up(const AppWaits *waits)
{
    RubatoWorkerStats sum = { 0 };

    for (uint32_t i = 0; i < waits->n_workers; i++)
        rubato_worker_stats_add(&sum, &waits->workers[i]);
    return sum;
}

static void add_seconds(const AppWaits *waits, GString *text)
{
    double least = seconds_of(&waits->workers[0]), most = least, sum = 0;

    for (uint32_t i = 0; i < waits->n_workers; i++) {
        const double seconds = seconds_of(&waits->workers[i]);

        least = MIN(least, seconds);
        most = MAX(most, seconds);
        sum += seconds;
        if (waits->n_workers <= WORKERS_SHOWN)
            g_string_append_printf(text, "%s%.2f", i > 0 ? ", " : "", seconds);
    }
    if (waits->n_workers > WORKERS_SHOWN)
        g_string_append_printf(text, "%.2f to %.2f, mean %.2f", least, most,
                               sum / waits->n_workers);
    g_string_append(text, waits->n_workers == 1 ? " s\n" : " s by worker\n");
}

static double mean_staleness(const RubatoWorkerStats *sum)
{
    return sum->n_gets == 0 ? 0 : (double)sum->staleness_sum / (double)sum->n_gets;
}

static void add_staleness(const RubatoWorkerStats *sum, GString *text)
{
    const double n = (double)sum->n_gets;

    g_string_append_printf(text, "mean %.2f, at most %" G_GUINT64_FORMAT, mean_staleness(sum),
                           sum->staleness_max);
    for (uint64_t i = 0; i <= sum->staleness_max && sum->staleness_max < STALENESS_SHOWN; i++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT ": %.0f %%", i == 0 ? "; " : ", ", i,
                               (double)sum->staleness[i] / n * 100);
    g_string_append_c(text, '\n');
}

void app_waits_add_text(const AppWaits *waits, GString *text)
{
    const RubatoWorkerStats sum = add_up(waits);

    if (waits->n_workers == 0)
        return;
    g_string_append_printf(text, "  %-14s ", "waiting");
    add_seconds(waits, text);
    if (sum.n_gets == 0)
        return;
    g_string_append_printf(text, "  %-14s ", "staleness seen");
    add_staleness(&sum, text);
}

void app_waits_add_json(const AppWaits *waits, JsonBuilder *builder)
{
    const RubatoWorkerStats sum = add_up(waits);
    size_t n = RUBATO_STALENESS_BUCKETS;

    if (waits->n_workers == 0)
        return;
    json_builder_set_member_name(builder, "waits");
    json_builder_begin_array(builder);
    for (uint32_t i = 0; i < waits->n_workers; i++)
        json_builder_add_double_value(builder, seconds_of(&waits->workers[i]));
    json_builder_end_array(builder);

    while (n > 0 && sum.staleness[n - 1] == 0)
        n--;
    json_builder_set_member_name(builder, "staleness_seen");
    json_builder_begin_array(builder);
    for (size_t i = 0; i < n; i++)
        json_builder_add_int_value(builder, (gint64)sum.staleness[i]);
    json_builder_end_array(builder);
    json_builder_set_member_name(builder, "staleness_mean");
    json_builder_add_double_value(builder, mean_staleness(&sum));
    json_builder_set_member_name(builder, "staleness_most");
    json_builder_add_int_value(builder, (gint64)sum.staleness_max);
}
