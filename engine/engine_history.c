/* What of tables and tasks goes into the history of a node.
 *
 * The rows that a table has at its end are read once in a run, by the scheduler's node, as any
 * program reads them. With these, the history alone tells whether each Add counts once.
 *
 * Threads: that of the engine's calls, unless engine_private.h says otherwise. */
#include <rubato/ragged_table.h>

#include "engine/engine_private.h"
#include "engine/task/task_run.h"

enum { ROWS_AT_ONCE = 1 << 16, RAGGED_ROWS_AT_ONCE = 1 << 10 };

/* The nodes with which the run begins; 0: this one is not among them. */
static uint32_t count_first_nodes(const RubatoEngine *engine)
{
    if (engine->cluster == NULL)
        return engine->n_nodes;
    return engine->cluster->nodes[engine->self].spare ? 0 : cluster_first_nodes(engine->cluster);
}

bool engine_begin_history(RubatoEngine *engine, GError **error)
{
    const char *const folder = g_getenv(HISTORY_VARIABLE);

    if (folder == NULL || *folder == '\0')
        return true;
    const uint32_t n_first = count_first_nodes(engine);

    engine->history = engine->serving != NULL
                          ? history_open_again(folder, engine->id, n_first, error)
                          : history_open(folder, engine->id, n_first, error);
    if (engine->history == NULL)
        return false;
    g_message("node %u keeps a history of its workers' requests in %s", engine->id, folder);
    return true;
}

/* Of a task whose lost workers are replaced, the file has all that its workers have done before
 * their last clocks, whenever the process is killed. So it has all that came before. */
void engine_note_task(RubatoEngine *engine, const RubatoTaskRun *run)
{
    if (engine->history == NULL)
        return;
    history_say(engine->history, "task %u at %" G_GUINT64_FORMAT " %s\n", task_run_epoch(run),
                history_phase(engine->history), task_run_name(run));
    if (task_run_replace_ms(run) == 0)
        return;
    history_say(engine->history, "replaces %u for %u\n", task_run_epoch(run),
                task_run_n_local(run));
    task_run_note_return(run);
    history_flush(engine->history);
}

void engine_note_past_end(RubatoEngine *engine)
{
    if (engine->history != NULL)
        history_next_phase(engine->history);
}

/* The end is a phase of its own: all later requests see all that the task has done. */
void engine_note_end(RubatoEngine *engine, const RubatoTaskRun *run, bool ok)
{
    if (engine->history == NULL)
        return;
    history_next_phase(engine->history);
    history_say(engine->history, "end %u at %" G_GUINT64_FORMAT " %s\n", task_run_epoch(run),
                history_phase(engine->history), ok ? "well" : "badly");
}

/* A node may be lost and live. Then it goes on with its file, but what it says was not done. */
void engine_note_lost_node(RubatoEngine *engine, uint32_t number)
{
    if (engine->history != NULL)
        history_say(engine->history, "lost %u\n", engine->office.node_ids[number]);
}

void engine_note_table(RubatoEngine *engine, const Table *table)
{
    const RubatoTableSpec *const spec = table->spec;
    char value[G_ASCII_DTOSTR_BUF_SIZE];

    if (engine->history != NULL)
        history_say(engine->history,
                    "table %u dtype %s width %u model %s staleness %u speculation %u update %s "
                    "aggregate %d init %s %s shape %s name %s\n",
                    table->id, rubato_dtype_name(spec->dtype), spec->width, spec->model,
                    spec->staleness, spec->speculation, spec->update, (int)spec->aggregate,
                    spec->init, g_ascii_dtostr(value, sizeof value, spec->init_value),
                    spec->shape == RUBATO_SHAPE_RAGGED ? "ragged" : "even", spec->name);
}

static bool read_keys(RubatoEngine *engine, const Table *table, void *rows, GError **error)
{
    g_autofree RubatoKey *keys = NULL;
    bool ok;
    size_t n;

    ok = rubato_engine_list_keys(engine, table->spec->name, &keys, &n, error);
    for (size_t at = 0; ok && at < n; at += ROWS_AT_ONCE)
        ok = rubato_engine_get(engine, table->spec->name, keys + at, MIN(n - at, ROWS_AT_ONCE),
                               rows, error);
    return ok;
}

static bool read_range(RubatoEngine *engine, const Table *table, void *rows, GError **error)
{
    const RubatoTableSpec *const spec = table->spec;
    bool ok = true;

    for (uint64_t at = 0; ok && at < spec->n_keys; at += ROWS_AT_ONCE)
        ok = rubato_engine_get_range(engine, spec->name, spec->first_key + at,
                                     MIN(spec->n_keys - at, ROWS_AT_ONCE), rows, error);
    return ok;
}

/* The rows of some keys; one at a time if they are too long to be read at once. */
static bool read_ragged_rows(RubatoEngine *engine, const Table *table, const RubatoKey *keys,
                             size_t n, GError **error)
{
    uint32_t lengths[RAGGED_ROWS_AT_ONCE];
    g_autofree void *values = NULL;
    bool ok = rubato_engine_get_ragged(engine, table->spec->name, keys, n, lengths, &values, NULL);

    for (size_t i = 0; i < n && !ok; i++) {
        g_autofree void *row = NULL;

        if (!rubato_engine_get_ragged(engine, table->spec->name, &keys[i], 1, lengths, &row, error))
            return false;
        ok = i + 1 == n;
    }
    return ok;
}

static bool read_ragged(RubatoEngine *engine, const Table *table, GError **error)
{
    const RubatoTableSpec *const spec = table->spec;
    const bool is_range = table->partition.dense;
    g_autofree RubatoKey *listed = NULL;
    RubatoKey some[RAGGED_ROWS_AT_ONCE];
    size_t n = spec->n_keys;

    if (!is_range && !rubato_engine_list_keys(engine, spec->name, &listed, &n, error))
        return false;
    for (size_t at = 0; at < n; at += RAGGED_ROWS_AT_ONCE) {
        const size_t n_here = MIN(n - at, RAGGED_ROWS_AT_ONCE);

        for (size_t i = 0; i < n_here; i++)
            some[i] = is_range ? spec->first_key + at + i : listed[at + i];
        if (!read_ragged_rows(engine, table, some, n_here, error))
            return false;
    }
    return true;
}

static bool read_even(RubatoEngine *engine, const Table *table, GError **error)
{
    g_autofree void *rows = g_try_malloc(ROWS_AT_ONCE * table->row_bytes);

    return rows != NULL && (table->partition.dense ? read_range(engine, table, rows, error)
                                                   : read_keys(engine, table, rows, error));
}

/* Each request goes into the history as every other does. */
static void read_table(RubatoEngine *engine, const Table *table)
{
    g_autoptr(GError) error = NULL;

    if (table->spec->shape == RUBATO_SHAPE_RAGGED ? read_ragged(engine, table, &error)
                                                  : read_even(engine, table, &error))
        history_say(engine->history, "rows %u at %" G_GUINT64_FORMAT "\n", table->id,
                    history_phase(engine->history));
    else
        g_message("node %u: its history lacks the last rows of table %s: %s", engine->id,
                  table->spec->name, error != NULL ? error->message : "there is no memory");
}

static bool reads_tables(RubatoEngine *engine)
{
    return engine->history != NULL && engine->self == engine->scheduler_node &&
           !atomic_load(&engine->broken) && (engine->cluster == NULL || engine->rendezvous.welcome);
}

void engine_note_drop(RubatoEngine *engine, const char *name)
{
    Table *table;

    if (!reads_tables(engine))
        return;
    pthread_mutex_lock(&engine->lock);
    table = engine_hold_table(engine, name, NULL);
    pthread_mutex_unlock(&engine->lock);
    if (table == NULL)
        return;
    read_table(engine, table);
    pthread_mutex_lock(&engine->lock);
    engine_release_table(engine, table);
    pthread_mutex_unlock(&engine->lock);
}

/* Nobody makes or drops a table meanwhile: the caller ends the engine. */
void engine_end_history(RubatoEngine *engine)
{
    if (!reads_tables(engine))
        return;
    for (guint i = 0; i < engine->tables->len; i++)
        read_table(engine, g_ptr_array_index(engine->tables, i));
}
