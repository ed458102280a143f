/* Restoring a snapshot: two collective calls. In the first, each node reads and checks its share of
 * the files, and whether their rows fit the tables. In the second, it reads them again, and gives
 * the rows to the servers that have them now, by the engine's usual calls. So nothing is written
 * before all nodes know that the whole snapshot is good.
 *
 * A file is read by the node that has the part of the same number now. If the table has the same
 * parts as when the snapshot was written, no row leaves its node.
 *
 * Threads: that of the engine's calls. */
#include <string.h>

#include "engine/engine_private.h"
#include "engine/parts/ready_memory.h"
#include "engine/snapshot/restore_admission.h"
#include "io/store/snapshot.h"
#include "models/spec.h"

#include <rubato/ragged_table.h>
#include <rubato/snapshot.h>

typedef struct {
    const RubatoRestoreSpec *spec;
    uint64_t number;
    RubatoSnapshot *snapshot; /* NULL until it is open */
    bool *wanted;             /* by table of the snapshot */
} Restoring;

/* ---- whether a table fits ---- */

static bool refuse(const RubatoSnapshotTable *was, const Table *is, const char *why, GError **error)
{
    const RubatoTableSpec *spec = is->spec;
    const size_t value_bytes = rubato_dtype_size(spec->dtype);
    g_autofree char *was_range =
        was->holds_range ? g_strdup_printf("%" G_GUINT64_FORMAT " keys from %" G_GUINT64_FORMAT,
                                           was->n_keys, was->first_key)
                         : g_strdup("any keys");
    g_autofree char *is_range =
        rubato_table_spec_holds_range(spec)
            ? g_strdup_printf("%" G_GUINT64_FORMAT " keys from %" G_GUINT64_FORMAT, spec->n_keys,
                              spec->first_key)
            : g_strdup("any keys");

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "table %s: the snapshot's rows do not fit: %s. The snapshot has %s of %s × %u%s, "
                "rule \"%s\" with %u values of state; the table has %s of %s × %u%s, rule \"%s\" "
                "with %zu values of state",
                was->name, why, was_range, rubato_dtype_name(was->dtype), was->width,
                was->shape == RUBATO_SHAPE_RAGGED ? " of different lengths" : "", was->update,
                was->state_width, is_range, rubato_dtype_name(spec->dtype), spec_width(spec),
                spec->shape == RUBATO_SHAPE_RAGGED ? " of different lengths" : "",
                spec_update_name(spec), is->state_bytes / value_bytes);
    return false;
}

static bool converts(RubatoDtype from, RubatoDtype to)
{
    return from == to || (from == RUBATO_F32 && to == RUBATO_F64) ||
           (from == RUBATO_F64 && to == RUBATO_F32) || (from == RUBATO_I32 && to == RUBATO_I64);
}

/* Whether the range of the table has n keys from `first` on. */
static bool range_has(const RubatoTableSpec *spec, RubatoKey first, uint64_t n)
{
    return first >= spec->first_key && first - spec->first_key <= spec->n_keys &&
           n <= spec->n_keys - (first - spec->first_key);
}

static bool check_fit(const RubatoSnapshotTable *was, const Table *is, RubatoRestoreWhat what,
                      GError **error)
{
    const RubatoTableSpec *spec = is->spec;
    const size_t state_width = is->state_bytes / rubato_dtype_size(spec->dtype);

    if (was->shape != spec->shape)
        return refuse(was, is, "one has rows of different lengths", error);
    if (was->shape == RUBATO_SHAPE_EVEN && was->width != spec_width(spec))
        return refuse(was, is, "the rows have different widths", error);
    if (!converts(was->dtype, spec->dtype))
        return refuse(was, is, "one dtype does not become the other", error);
    if (was->holds_range && rubato_table_spec_holds_range(spec) &&
        !range_has(spec, was->first_key, was->n_keys))
        return refuse(was, is, "the table does not have all keys of the snapshot", error);
    if (what == RUBATO_RESTORE_ALL &&
        (strcmp(was->update, spec_update_name(spec)) != 0 || was->state_width != state_width))
        return refuse(was, is,
                      "their update rules keep different state; to take the values alone, say so",
                      error);
    return true;
}

/* The table of the engine with that name. Nobody drops it during a collective call. */
static Table *find_table(RubatoEngine *engine, const char *name, GError **error)
{
    Table *table;

    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    pthread_mutex_unlock(&engine->lock);
    return table;
}

/* ---- a part ---- */

typedef struct {
    RubatoEngine *engine;
    const RubatoSnapshotTable *was;
    const Table *is;
    RubatoRestoreWhat what;
    uint32_t part;
    void *values, *states; /* as the table has them; NULL until they are converted */
    size_t n_values, n_states;
} Filling;

/* Refuses rows whose keys the table cannot have. */
static bool check_keys(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    const Filling *filling = user_data;
    const RubatoTableSpec *spec = filling->is->spec;

    if (!rubato_table_spec_holds_range(spec))
        return true;
    if (rows->keys == NULL && !range_has(spec, rows->first, rows->n))
        return refuse(filling->was, filling->is, "the table does not have all keys of the snapshot",
                      error);
    for (size_t i = 0; rows->keys != NULL && i < rows->n; i++)
        if (!range_has(spec, rows->keys[i], 1)) {
            g_autofree char *why = g_strdup_printf(
                "the table does not have the key %" G_GUINT64_FORMAT, rows->keys[i]);

            return refuse(filling->was, filling->is, why, error);
        }
    return true;
}

static void convert(RubatoDtype from, RubatoDtype to, size_t n, const void *was, void *is)
{
    for (size_t i = 0; i < n; i++)
        if (from == RUBATO_F32 && to == RUBATO_F64)
            ((double *)is)[i] = (double)((const float *)was)[i];
        else if (from == RUBATO_F64 && to == RUBATO_F32)
            ((float *)is)[i] = (float)((const double *)was)[i];
        else
            ((int64_t *)is)[i] = ((const int32_t *)was)[i];
}

/* The values as the table has them: where they are, or converted into *memory. NULL: there is no
 * memory. */
static const void *take_values(const Filling *filling, const void *was, size_t n, void **memory,
                               size_t *n_memory, GError **error)
{
    const RubatoDtype from = filling->was->dtype, to = filling->is->spec->dtype;

    if (from == to)
        return was;
    if (*memory == NULL || n > *n_memory) {
        g_free(*memory);
        *memory = g_try_malloc_n(MAX(n, 1), rubato_dtype_size(to));
        *n_memory = n;
    }
    if (*memory == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory to convert %zu values", filling->was->name, n);
        return NULL;
    }
    convert(from, to, n, was, *memory);
    return *memory;
}

static bool fill_ragged(Filling *filling, const RubatoSnapshotRows *rows, GError **error)
{
    const void *values;
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++)
        n += rows->lengths[i];
    values = take_values(filling, rows->values, n, &filling->values, &filling->n_values, error);
    return values != NULL &&
           rubato_engine_assign_ragged(filling->engine, filling->was->name, rows->keys, rows->n,
                                       rows->lengths, values, error);
}

static bool fill_states(Filling *filling, const RubatoSnapshotRows *rows, GError **error)
{
    const char *name = filling->was->name;
    const void *states = take_values(filling, rows->states, rows->n * filling->was->state_width,
                                     &filling->states, &filling->n_states, error);

    if (states == NULL)
        return false;
    return rows->keys != NULL
               ? rubato_engine_set_state(filling->engine, name, rows->keys, rows->n, states, error)
               : rubato_engine_set_state_range(filling->engine, name, rows->first, rows->n, states,
                                               error);
}

static bool fill_even(Filling *filling, const RubatoSnapshotRows *rows, GError **error)
{
    const char *name = filling->was->name;
    const void *values = take_values(filling, rows->values, rows->n * filling->was->width,
                                     &filling->values, &filling->n_values, error);

    if (values == NULL)
        return false;
    /* Setting values sets the state of a new row, so the state comes second. */
    return (rows->keys != NULL
                ? rubato_engine_set(filling->engine, name, rows->keys, rows->n, values, error)
                : rubato_engine_set_range(filling->engine, name, rows->first, rows->n, values,
                                          error)) &&
           (rows->states == NULL || filling->what == RUBATO_RESTORE_VALUES ||
            fill_states(filling, rows, error));
}

static bool fill_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Filling *filling = user_data;

    return rows->lengths != NULL ? fill_ragged(filling, rows, error)
                                 : fill_even(filling, rows, error);
}

static bool fill_tuned(uint32_t hyper, double value, void *user_data, GError **error)
{
    Filling *filling = user_data;

    return filling->what == RUBATO_RESTORE_VALUES ||
           rubato_engine_tune(filling->engine, filling->was->name, (RubatoHyper)hyper, value,
                              error);
}

/* ---- this node's share ---- */

typedef enum {
    PASS_CHECK,
    PASS_FILL,
} Pass;

/* Who reads what goes to a node's parts: itself, or, if a process has the node's place that only
 * serves, the first node that runs the program, that of the scheduler before others. This one runs
 * it. */
static uint32_t filler_of(RubatoEngine *engine, uint32_t node)
{
    uint32_t filler = node, next = 0;

    pthread_mutex_lock(&engine->lock);
    if (engine->call.workerless[filler])
        filler = engine->scheduler_node;
    while (engine->call.workerless[filler])
        filler = next++;
    pthread_mutex_unlock(&engine->lock);
    return filler;
}

/* The thread ends by itself, or with ready_memory_stop. NULL: there is none. */
static ReadyMemory *start_ready(RubatoEngine *engine, const Table *is,
                                const RubatoSnapshotTable *was)
{
    return was->holds_range && was->n_keys > 0
               ? ready_memory_start(engine, is, was->first_key, was->n_keys)
               : NULL;
}

static bool read_table(RubatoEngine *engine, const Restoring *restoring, size_t number, Pass pass,
                       GError **error)
{
    const RubatoSnapshotTable *was = rubato_snapshot_table(restoring->snapshot, number);
    const Table *is = find_table(engine, was->name, error);
    Filling filling = { .engine = engine, .was = was, .is = is, .what = restoring->spec->what };
    const PartTaker taker = { .rows = pass == PASS_CHECK ? check_keys : fill_rows,
                              .tuned = pass == PASS_CHECK ? NULL : fill_tuned,
                              .user_data = &filling };
    bool ok = is != NULL && check_fit(was, is, restoring->spec->what, error);
    ReadyMemory *const ready = ok && pass == PASS_FILL ? start_ready(engine, is, was) : NULL;

    for (uint32_t part = 0; ok && part < was->n_parts; part++) {
        const uint32_t server = part_map_server(is->map, part % is->map->n_parts);
        const uint32_t node = engine->office.servers[server].node;

        if (filler_of(engine, node) == engine->self)
            ok = snapshot_read_part(restoring->snapshot, number, part, &taker, error);
    }
    ready_memory_stop(ready);
    if (ok && pass == PASS_FILL && restoring->spec->what == RUBATO_RESTORE_ALL)
        ok = restore_admission(engine, restoring->snapshot, number, is, error);
    g_free(filling.values);
    g_free(filling.states);
    return ok;
}

static bool read_share(RubatoEngine *engine, const Restoring *restoring, Pass pass, GError **error)
{
    const size_t n = rubato_snapshot_n_tables(restoring->snapshot);

    for (size_t i = 0; i < n; i++)
        if (restoring->wanted[i] && !read_table(engine, restoring, i, pass, error)) {
            g_prefix_error(error, "node %u: ", engine->id);
            return false;
        }
    return true;
}

/* ---- readers of training data ---- */

static bool wants_all_tables(const Restoring *restoring)
{
    for (size_t i = 0; i < rubato_snapshot_n_tables(restoring->snapshot); i++)
        if (!restoring->wanted[i])
            return false;
    return true;
}

/* With some of the tables alone, what came of the rows that are done may be missing. */
static bool restores_readers(const Restoring *restoring)
{
    return restoring->spec->what == RUBATO_RESTORE_ALL && wants_all_tables(restoring);
}

static bool check_readers(RubatoEngine *engine, const Restoring *restoring, GError **error)
{
    const Manifest *const manifest = snapshot_manifest(restoring->snapshot);

    pthread_mutex_lock(&engine->lock);
    const bool scheduler_serves = engine->call.workerless[engine->scheduler_node];
    pthread_mutex_unlock(&engine->lock);
    if (manifest->n_readers > 0 && scheduler_serves && restores_readers(restoring)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "snapshot %" G_GUINT64_FORMAT " of %s has readers, and the scheduler's process "
                    "has taken the place of a lost one, so it cannot restore them: start the run "
                    "again, or restore the values alone",
                    restoring->number, restoring->spec->directory);
        return false;
    }

    for (size_t i = 0; i < manifest->n_readers; i++)
        if (!scheduler_check_kept_reader(manifest->readers[i].text)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "snapshot %" G_GUINT64_FORMAT
                        " of %s: what it says of the reader \"%s\" makes no sense",
                        restoring->number, restoring->spec->directory, manifest->readers[i].name);
            return false;
        }
    return true;
}

static void give_readers(Scheduler *scheduler, int64_t now_ms, void *readers)
{
    (void)now_ms;
    scheduler_restore_readers(scheduler, readers);
}

static void restore_readers(RubatoEngine *engine, const Restoring *restoring)
{
    const Manifest *const manifest = snapshot_manifest(restoring->snapshot);
    GHashTable *readers;

    if (engine->self != engine->scheduler_node || !restores_readers(restoring))
        return;
    readers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    for (size_t i = 0; i < manifest->n_readers; i++)
        g_hash_table_insert(readers, g_strdup(manifest->readers[i].name),
                            g_strdup(manifest->readers[i].text));
    dispatch_look_at_scheduler(engine, give_readers, readers);
}

/* ---- the two passes ---- */

/* Finds which tables are wanted. */
static bool choose_tables(Restoring *restoring, GError **error)
{
    const size_t n = rubato_snapshot_n_tables(restoring->snapshot);
    const char *const *names = restoring->spec->tables;

    restoring->wanted = g_new0(bool, MAX(n, 1));
    for (size_t i = 0; names == NULL && i < n; i++)
        restoring->wanted[i] = true;
    for (; names != NULL && *names != NULL; names++) {
        const RubatoSnapshotTable *table = rubato_snapshot_find_table(restoring->snapshot, *names);

        for (size_t i = 0; i < n; i++)
            restoring->wanted[i] |= rubato_snapshot_table(restoring->snapshot, i) == table;
        if (table != NULL)
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "snapshot %" G_GUINT64_FORMAT " in %s has no table %s", restoring->number,
                    restoring->spec->directory, *names);
        return false;
    }
    return true;
}

static bool open_snapshot(Restoring *restoring, GError **error)
{
    restoring->snapshot =
        rubato_snapshot_open(restoring->spec->directory, restoring->number, error);
    return restoring->snapshot != NULL && choose_tables(restoring, error);
}

static bool perform_check(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Restoring *restoring = data;
    bool runs;

    (void)go;
    pthread_mutex_lock(&engine->lock);
    runs = engine->runs->len > 0;
    pthread_mutex_unlock(&engine->lock);
    if (runs) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "a task runs, and a snapshot is restored between tasks: wait for the "
                            "task first");
        return false;
    }
    return open_snapshot(restoring, error) && check_readers(engine, restoring, error) &&
           read_share(engine, restoring, PASS_CHECK, error);
}

/* A process that has caught up between the two calls has not made the first one. */
static bool perform_fill(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Restoring *const restoring = data;

    (void)go;
    if ((restoring->snapshot == NULL && !open_snapshot(restoring, error)) ||
        !check_readers(engine, restoring, error) ||
        !read_share(engine, restoring, PASS_FILL, error))
        return false;
    restore_readers(engine, data);
    return true;
}

/* ---- the call ---- */

/* (transfer full) */
static char *describe_call(const Restoring *restoring)
{
    const RubatoRestoreSpec *spec = restoring->spec;
    g_autofree char *tables =
        spec->tables == NULL ? g_strdup("all") : g_strjoinv(" ", (char **)(uintptr_t)spec->tables);

    return g_strdup_printf("tables %s, %s", tables,
                           spec->what == RUBATO_RESTORE_VALUES ? "values" : "all of the rows");
}

/* Restores one snapshot. *is_damaged: it is not good, and no row of it was restored. */
static bool restore_one(RubatoEngine *engine, Restoring *restoring, bool *is_damaged,
                        GError **error)
{
    g_autofree char *text = g_strdup_printf("snapshot %" G_GUINT64_FORMAT " of %s",
                                            restoring->number, restoring->spec->directory);
    g_autofree char *rows = g_strdup_printf("the rows of %s", text);
    g_autofree char *detail = describe_call(restoring);
    g_autoptr(GError) fault = NULL;
    CollectiveCall call = { .what = CONTROL_CALL_RESTORE,
                            .text = text,
                            .detail = detail,
                            .perform = perform_check,
                            .data = restoring };
    bool ok = collective(engine, &call, &fault);

    *is_damaged = !ok && (g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_FORMAT) ||
                          g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO));
    if (ok) {
        call.text = rows;
        call.perform = perform_fill;
        ok = collective(engine, &call, &fault);
    }
    if (!ok)
        g_propagate_error(error, g_steal_pointer(&fault));
    g_clear_pointer(&restoring->snapshot, rubato_snapshot_free);
    g_clear_pointer(&restoring->wanted, g_free);
    return ok;
}

/* The newest one that is good. All nodes see the same directory, and go through it together. */
static bool restore_newest(RubatoEngine *engine, Restoring *restoring, GError **error)
{
    const char *directory = restoring->spec->directory;
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    for (size_t i = n; i > 0; i--) {
        g_autoptr(GError) fault = NULL;
        bool is_damaged;

        restoring->number = numbers[i - 1];
        if (restore_one(engine, restoring, &is_damaged, &fault))
            return true;
        if (!is_damaged || i == 1) {
            g_propagate_error(error, g_steal_pointer(&fault));
            return false;
        }
        if (engine->self == engine->scheduler_node)
            g_message("snapshot %" G_GUINT64_FORMAT " cannot be restored, so snapshot "
                      "%" G_GUINT64_FORMAT " is taken: %s",
                      numbers[i - 1], numbers[i - 2], fault->message);
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "%s: there is no snapshot in it",
                directory);
    return false;
}

/* For those who ask how far the run is. */
static void note_restored(RubatoEngine *engine, const Restoring *restoring)
{
    pthread_mutex_lock(&engine->lock);
    g_free(engine->restored_from);
    engine->restored_from = g_strdup(restoring->spec->directory);
    engine->restored_number = restoring->number;
    pthread_mutex_unlock(&engine->lock);
}

bool rubato_engine_restore(RubatoEngine *engine, const RubatoRestoreSpec *spec, uint64_t *number,
                           GError **error)
{
    Restoring restoring = { .spec = spec };
    bool is_damaged, ok;

    g_return_val_if_fail(engine != NULL && spec != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!engine_check_caller(engine, "restoring a snapshot", error))
        return false;
    if (spec->directory == NULL || *spec->directory == '\0') {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "restoring a snapshot needs a directory");
        return false;
    }
    restoring.number = spec->number;
    ok = spec->number != 0 ? restore_one(engine, &restoring, &is_damaged, error)
                           : restore_newest(engine, &restoring, error);
    if (ok)
        note_restored(engine, &restoring);
    if (ok && number != NULL)
        *number = restoring.number;
    return ok;
}
