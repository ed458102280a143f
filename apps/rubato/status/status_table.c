/* Tables of nodes, tables, tasks, and what waits. The run as the scheduler sees it, and each node's
 * own part, are brought together here: by the number of the task and that of the reader. */
#include "apps/rubato/status/status_table.h"

#include <inttypes.h>
#include <string.h>

/* ---- columns ---- */

/* Rows of texts; the first one has the names of the columns. */
typedef struct {
    unsigned n_columns;
    GPtrArray *cells; /* of char * */
} Grid;

static Grid grid_new(const char *const *names)
{
    Grid grid = { .cells = g_ptr_array_new_with_free_func(g_free) };

    for (; names[grid.n_columns] != NULL; grid.n_columns++)
        g_ptr_array_add(grid.cells, g_strdup(names[grid.n_columns]));
    return grid;
}

/* Takes the text; NULL is "-". */
static void grid_add(Grid *grid, char *cell)
{
    g_ptr_array_add(grid->cells, cell != NULL ? cell : g_strdup("-"));
}

static void grid_add_count(Grid *grid, int64_t count)
{
    grid_add(grid, count >= 0 ? g_strdup_printf("%" PRId64, count) : NULL);
}

/* Appends and clears it; nothing if it has only names. */
static void grid_end(Grid *grid, const char *indent, GString *text)
{
    const unsigned n = grid->cells->len / grid->n_columns;
    g_autofree glong *widths = g_new0(glong, grid->n_columns);

    for (guint i = 0; i < grid->cells->len; i++) {
        const glong width = g_utf8_strlen(grid->cells->pdata[i], -1);

        widths[i % grid->n_columns] = MAX(widths[i % grid->n_columns], width);
    }
    for (unsigned row = 0; n > 1 && row < n; row++) {
        g_string_append(text, indent);
        for (unsigned i = 0; i < grid->n_columns; i++) {
            const char *const cell = grid->cells->pdata[row * grid->n_columns + i];
            const glong left = widths[i] + 2 - g_utf8_strlen(cell, -1);

            g_string_append(text, cell);
            if (i + 1 < grid->n_columns)
                g_string_append_printf(text, "%*s", (int)left, "");
        }
        g_string_append_c(text, '\n');
    }
    g_ptr_array_unref(grid->cells);
}

/* ---- rates ---- */

typedef struct {
    int64_t rows;
    double seconds;
} Sample;

struct StatusRates {
    GHashTable *samples; /* "task worker reader" → Sample */
};

StatusRates *status_rates_new(void)
{
    StatusRates *const rates = g_new0(StatusRates, 1);

    rates->samples = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    return rates;
}

void status_rates_free(StatusRates *rates)
{
    if (rates == NULL)
        return;
    g_hash_table_unref(rates->samples);
    g_free(rates);
}

/* Rows a second since the sample before; keeps this one. */
static char *rate_text(StatusRates *rates, char *key, Sample now)
{
    const Sample *const before = g_hash_table_lookup(rates->samples, key);
    const Sample from = before != NULL && before->seconds < now.seconds ? *before : (Sample){ 0 };
    const double seconds = now.seconds - from.seconds;
    const double rate = seconds > 0 ? (double)(now.rows - from.rows) / seconds : 0;

    g_hash_table_replace(rates->samples, key, g_memdup2(&now, sizeof now));
    return seconds > 0 && rate >= 0 ? g_strdup_printf("%.0f", rate) : NULL;
}

/* ---- nodes and tables ---- */

static JsonObject *find_by(JsonObject *object, const char *list, const char *name, int64_t number)
{
    for (unsigned i = 0; i < status_json_length(object, list); i++) {
        JsonObject *const one = status_json_element(object, list, i);

        if (one != NULL && status_json_count(one, name) == number)
            return one;
    }
    return NULL;
}

static void append_nodes(JsonObject *status, GString *text)
{
    JsonObject *const run = status_json_object(status, "run");
    Grid grid = grid_new((const char *const[]){ "node", "state", "heard", "name", NULL });
    g_autoptr(GString) faults = g_string_new(NULL);

    for (unsigned i = 0; i < status_json_length(run, "nodes"); i++) {
        JsonObject *const node = status_json_element(run, "nodes", i);
        const int64_t id = status_json_count(node, "node");
        JsonObject *const own = find_by(status, "nodes", "node", id);
        g_autofree char *why = status_json_text(node, "why");
        g_autofree char *no_answer = status_json_text(own, "no_answer");

        grid_add_count(&grid, id);
        grid_add(&grid, status_json_text(node, "state"));
        grid_add(&grid, node != NULL && json_object_has_member(node, "silent_s")
                            ? g_strdup_printf("%.1f s ago", status_json_seconds(node, "silent_s"))
                            : NULL);
        grid_add(&grid, status_json_text(node, "name"));
        if (why != NULL)
            g_string_append_printf(faults, "%s\n", why);
        if (no_answer != NULL)
            g_string_append_printf(faults, "node %" PRId64 " does not say how far it is: %s\n", id,
                                   no_answer);
    }
    grid_end(&grid, "", text);
    g_string_append(text, faults->str);
}

static void append_tables(JsonObject *status, GString *text)
{
    Grid grid = grid_new((const char *const[]){ "table", "rows of", "keys", "model", "update",
                                                "parts", "replicas", NULL });

    for (unsigned i = 0; i < status_json_length(status, "tables"); i++) {
        JsonObject *const table = status_json_element(status, "tables", i);
        g_autofree char *dtype = status_json_text(table, "dtype");

        grid_add(&grid, status_json_text(table, "name"));
        grid_add(&grid, g_strdup_printf("%s × %" PRId64, dtype != NULL ? dtype : "?",
                                        status_json_count(table, "width")));
        grid_add_count(&grid, status_json_count(table, "keys"));
        grid_add(&grid, status_json_text(table, "model"));
        grid_add(&grid, status_json_text(table, "update"));
        grid_add_count(&grid, status_json_count(table, "parts"));
        grid_add_count(&grid, status_json_count(table, "replicas"));
    }
    if (grid.cells->len > grid.n_columns)
        g_string_append_c(text, '\n');
    grid_end(&grid, "", text);
}

/* ---- a task ---- */

/* A worker's clocks on the task's tables, one number if they are the same. (transfer full) */
static char *clocks_text(JsonObject *worker)
{
    JsonObject *const clocks = status_json_object(worker, "clocks");
    g_autoptr(GList) names = clocks != NULL ? json_object_get_members(clocks) : NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    bool are_same = true;

    if (names == NULL)
        return NULL;
    const int64_t first = status_json_count(clocks, names->data);
    for (const GList *at = names; at != NULL; at = at->next) {
        const int64_t clock = status_json_count(clocks, at->data);

        are_same &= clock == first;
        g_string_append_printf(text, "%s%" PRId64, at == names ? "" : "/", clock);
    }
    return are_same ? g_strdup_printf("%" PRId64, first)
                    : g_string_free(g_steal_pointer(&text), FALSE);
}

/* The tables of these clocks, in the same order. (transfer full) */
static char *names_of_clocks(JsonObject *worker)
{
    g_autoptr(GList) names = json_object_get_members(status_json_object(worker, "clocks"));
    g_autoptr(GString) text = g_string_new(NULL);

    for (const GList *at = names; at != NULL; at = at->next)
        g_string_append_printf(text, "%s%s", at == names ? "" : "/", (const char *)at->data);
    return status_json_printable(text->str);
}

static char *state_text(JsonObject *worker, JsonObject *place)
{
    if (status_json_flag(worker, "ended"))
        return g_strdup("returned");
    return g_strdup(place == NULL                         ? "runs"
                    : status_json_flag(place, "read_all") ? "has read all"
                    : status_json_flag(place, "ended")    ? "reads no more"
                                                          : "reads");
}

/* What a worker has in hand, of a reader; place NULL: it has opened none. */
static void add_worker(Grid *grid, StatusRates *rates, int64_t task, int64_t node,
                       JsonObject *worker, int64_t reader, JsonObject *place)
{
    const int64_t rank = status_json_count(worker, "worker");
    const int64_t block = status_json_count(place, "block");
    const int64_t rows = status_json_count(place, "rows");

    grid_add_count(grid, rank);
    grid_add_count(grid, node);
    grid_add(grid, state_text(worker, place));
    grid_add(grid, clocks_text(worker));
    grid_add_count(grid, place != NULL ? reader : -1);
    grid_add_count(grid, status_json_count(place, "epoch"));
    grid_add(grid, status_json_text(place, "file"));
    grid_add_count(grid, block);
    grid_add(grid, block >= 0 ? g_strdup_printf("%" PRId64 " of %" PRId64,
                                                status_json_count(place, "block_row"),
                                                status_json_count(place, "block_rows"))
                              : NULL);
    grid_add_count(grid, status_json_count(place, "blocks"));
    grid_add_count(grid, rows);
    grid_add(grid, place != NULL
                       ? rate_text(rates,
                                   g_strdup_printf("%" PRId64 " %" PRId64 " %" PRId64, task, rank,
                                                   reader),
                                   (Sample){ rows, status_json_seconds(place, "seconds") })
                       : NULL);
}

/* The tables of which a worker's clocks are, if they are not the same number. */
static void append_tables_of_clocks(JsonObject *status, int64_t task, GString *text)
{
    for (unsigned n = 0; n < status_json_length(status, "nodes"); n++) {
        JsonObject *const own =
            find_by(status_json_element(status, "nodes", n), "tasks", "task", task);

        for (unsigned i = 0; i < status_json_length(own, "workers"); i++) {
            JsonObject *const worker = status_json_element(own, "workers", i);
            g_autofree char *clocks = clocks_text(worker);
            g_autofree char *names = NULL;

            if (clocks == NULL || strchr(clocks, '/') == NULL)
                continue;
            names = names_of_clocks(worker);
            g_string_append_printf(text, "  clocks are of %s\n", names);
            return;
        }
    }
}

/* The workers of a node in the task. */
static void add_workers(Grid *grid, StatusRates *rates, int64_t task, JsonObject *node)
{
    JsonObject *const own = find_by(node, "tasks", "task", task);
    const int64_t id = status_json_count(node, "node");

    for (unsigned i = 0; i < status_json_length(own, "workers"); i++) {
        JsonObject *const worker = status_json_element(own, "workers", i);
        const int64_t rank = status_json_count(worker, "worker");
        bool reads = false;

        for (unsigned r = 0; r < status_json_length(own, "readers"); r++) {
            JsonObject *const reader = status_json_element(own, "readers", r);
            JsonObject *const place = find_by(reader, "workers", "worker", rank);

            if (place != NULL)
                add_worker(grid, rates, task, id, worker, status_json_count(reader, "reader"),
                           place);
            reads |= place != NULL;
        }
        if (!reads)
            add_worker(grid, rates, task, id, worker, -1, NULL);
    }
}

/* The queue of a reader, as the scheduler keeps it. */
static void append_reader(JsonObject *reader, GString *text)
{
    g_autofree char *reads = status_json_text(reader, "reads");
    const int64_t done = status_json_count(reader, "done");
    const int64_t left = status_json_count(reader, "left");

    g_string_append_printf(text, "  reader %" PRId64 ": %s", status_json_count(reader, "reader"),
                           reads != NULL ? reads : "?");
    if (done >= 0) {
        g_string_append_printf(text, "; files %" PRId64 "; epoch %" PRId64 " of %" PRId64,
                               status_json_count(reader, "files"),
                               status_json_count(reader, "epoch"),
                               status_json_count(reader, "epochs"));
        g_string_append_printf(text, "; blocks %" PRId64 " read, %" PRId64 " at nodes, ", done,
                               status_json_count(reader, "dealt"));
        if (left >= 0)
            g_string_append_printf(text, "%" PRId64 " left", left);
        else
            g_string_append(text, "an unknown number left");
    }
    g_string_append_c(text, '\n');
}

/* `task`: as the scheduler tells of it, or, without that, as a node does. */
static void append_task(JsonObject *status, JsonObject *task, StatusRates *rates, GString *text)
{
    const int64_t number = status_json_count(task, "task");
    g_autofree char *name = status_json_text(task, "name");
    g_autofree char *cancelled = status_json_text(task, "cancelled");
    Grid grid = grid_new((const char *const[]){ "worker", "node", "state", "clock", "reader",
                                                "epoch", "file", "block", "row", "blocks read",
                                                "rows", "rows/s", NULL });

    g_string_append_printf(text, "\ntask %s", name != NULL ? name : "?");
    if (cancelled != NULL)
        g_string_append_printf(text, " was cancelled: %s", cancelled);
    else if (status_json_flag(task, "cancelled")) /* as nodes know it: not why */
        g_string_append(text, " was cancelled");
    else if (status_json_flag(task, "awaits_workers"))
        g_string_append(text, " waits for a process that has the workers of a lost node again");
    else if (status_json_flag(task, "has_lost_workers"))
        g_string_append(text, " continues without the workers of lost nodes");
    g_string_append_c(text, '\n');
    if (status_json_object(status, "run") != NULL)
        for (unsigned i = 0; i < status_json_length(task, "readers"); i++)
            append_reader(status_json_element(task, "readers", i), text);
    append_tables_of_clocks(status, number, text);
    for (unsigned i = 0; i < status_json_length(status, "nodes"); i++)
        add_workers(&grid, rates, number, status_json_element(status, "nodes", i));
    grid_end(&grid, "  ", text);
}

static void append_waits(JsonObject *run, GString *text)
{
    for (unsigned i = 0; i < status_json_length(run, "waits"); i++) {
        JsonObject *const wait = status_json_element(run, "waits", i);
        g_autofree char *what = status_json_text(wait, "text");

        g_string_append_printf(text, "%s  %s (for %.1f s)\n", i == 0 ? "\nwaiting\n" : "",
                               what != NULL ? what : "?", status_json_seconds(wait, "seconds"));
    }
}

/* ---- all of it ---- */

/* What a run does in that state. (transfer full) */
static char *state_of_run(JsonObject *status)
{
    g_autofree char *state = status_json_text(status, "state");

    if (g_strcmp0(state, "runs") == 0)
        return g_strdup("goes on");
    if (g_strcmp0(state, "broken") == 0)
        return g_strdup("is broken");
    return state != NULL ? g_steal_pointer(&state) : g_strdup("?");
}

static void append_head(JsonObject *status, GString *text)
{
    g_autofree char *state = state_of_run(status);
    g_autofree char *why = status_json_text(status, "why");
    const int64_t node = status_json_count(status, "node");
    const int64_t scheduler = status_json_count(status, "scheduler");
    const int64_t n_nodes = status_json_count(status, "n_nodes");
    JsonObject *const restored = status_json_object(status, "restored");
    g_autofree char *from = status_json_text(restored, "directory");
    g_autofree char *where = status_json_text(status, "scheduler_name");

    if (n_nodes <= 1)
        g_string_append_printf(text, "the run %s", state);
    else
        g_string_append_printf(text, "the run of %" PRId64 " nodes %s, says node %" PRId64, n_nodes,
                               state, node);
    if (from != NULL)
        g_string_append_printf(text, "; rows were restored from snapshot %" PRId64 " of %s",
                               status_json_count(restored, "snapshot"), from);
    g_string_append_printf(text, "%s%s\n", why != NULL ? ": " : "", why != NULL ? why : "");
    if (node >= 0 && node != scheduler)
        g_string_append_printf(text,
                               "this is what node %" PRId64 " knows of itself; the scheduler is on "
                               "node %" PRId64 " (%s), which tells of the whole run\n",
                               node, scheduler, where != NULL ? where : "?");
}

void status_table_append(JsonObject *status, StatusRates *rates, GString *text)
{
    JsonObject *const run = status_json_object(status, "run");
    JsonObject *const own = status_json_element(status, "nodes", 0);
    JsonObject *const with_tasks = run != NULL ? run : own;

    append_head(status, text);
    append_nodes(status, text);
    append_tables(status, text);
    for (unsigned i = 0; i < status_json_length(with_tasks, "tasks"); i++)
        append_task(status, status_json_element(with_tasks, "tasks", i), rates, text);
    append_waits(run, text);
}
