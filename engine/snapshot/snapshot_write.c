/* Writing a snapshot as a call that all nodes make. Adds of the engine's own calls return when they
 * are in the tables, and each node has made them before it comes here.
 *
 * Threads: that of the engine's calls. */
#include <string.h>

#include "engine/engine_private.h"
#include "engine/snapshot/snapshot_files.h"
#include "io/store/snapshot_folder.h"

static bool add_table(RubatoEngine *engine, SnapshotWriting *writing, const char *name,
                      GError **error)
{
    Table *table = engine_hold_table(engine, name, error);

    if (table == NULL)
        return false;
    g_ptr_array_add(writing->tables, table);
    return snapshot_check_table(table, error);
}

static bool add_tables(RubatoEngine *engine, SnapshotWriting *writing, GError **error)
{
    const char *const *names = writing->spec->tables;
    bool ok = true;

    pthread_mutex_lock(&engine->lock);
    if (names != NULL)
        for (; *names != NULL && ok; names++)
            ok = add_table(engine, writing, *names, error);
    else
        for (guint i = 0; i < engine->tables->len && ok; i++) {
            const Table *table = g_ptr_array_index(engine->tables, i);

            ok = add_table(engine, writing, table->spec->name, error);
        }
    pthread_mutex_unlock(&engine->lock);
    snapshot_sort_tables(writing->tables);
    for (guint i = 1; i < writing->tables->len && ok; i++)
        if (writing->tables->pdata[i - 1] == writing->tables->pdata[i]) {
            const Table *table = writing->tables->pdata[i];

            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "a snapshot of table %s twice: name each table once", table->spec->name);
            ok = false;
        }
    return ok;
}

/* What all nodes must agree on. (transfer full) */
static char *describe_call(const SnapshotWriting *writing)
{
    const RubatoSnapshotSpec *spec = writing->spec;
    g_autoptr(GString) text = g_string_new("tables");

    for (guint i = 0; i < writing->tables->len; i++) {
        const Table *table = g_ptr_array_index(writing->tables, i);

        g_string_append_printf(text, " %s", table->spec->name);
    }
    g_string_append_printf(text,
                           ", packing %d, keep %u, full_every %u, again_after_loss %d, note %s",
                           (int)spec->packing, spec->keep, spec->full_every,
                           (int)spec->again_after_loss, spec->note != NULL ? spec->note : "");
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static bool write_whole(RubatoEngine *engine, SnapshotWriting *writing, GError **error)
{
    g_autofree char *text = g_strdup_printf("a snapshot in %s", writing->spec->directory);
    g_autofree char *detail = describe_call(writing);
    g_autofree char *told = NULL;
    CutCall call = { .text = text, .detail = detail };
    const CutWork work = snapshot_work(writing);
    g_autoptr(GError) fault = NULL;
    bool ok;

    if (!snapshot_folder_draw_seed(&call.seed, error))
        return false;
    told = snapshot_write_ask(engine, writing->spec, CHANGES_FOR_SNAPSHOTS, writing->spec->tables,
                              NULL); /* NULL: it is too long to be told */
    call.told = told;
    snapshot_begin_requests(engine, writing);
    cut_init(&writing->cut, writing->tables, snapshot_make_spill(engine, writing));
    ok = cut_make(engine, &writing->cut, &call, &work, &fault);
    if (!ok) /* the verdict waits for all nodes */
        snapshot_abandon(engine, writing);
    cut_clear(engine, &writing->cut);
    snapshot_answer_requests(writing, ok ? NULL : fault->message);
    if (!ok)
        g_propagate_error(error, g_steal_pointer(&fault));
    return ok;
}

/* Other nodes than the scheduler's find the newest number: nobody else writes there. */
static bool find_number(SnapshotWriting *writing, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (writing->number != 0)
        return true;
    if (!rubato_snapshot_list(writing->spec->directory, &numbers, &n, error))
        return false;
    writing->number = n > 0 ? numbers[n - 1] : 0;
    return true;
}

static bool take_once(RubatoEngine *engine, const RubatoSnapshotSpec *spec, uint64_t *number,
                      GError **error)
{
    SnapshotWriting writing = { .spec = spec };
    bool ok;

    writing.tables = g_ptr_array_new();
    ok = add_tables(engine, &writing, error) && write_whole(engine, &writing, error) &&
         find_number(&writing, error);
    snapshot_writing_clear(engine, &writing);
    if (ok && number != NULL)
        *number = writing.number;
    return ok;
}

bool rubato_engine_snapshot(RubatoEngine *engine, const RubatoSnapshotSpec *spec, uint64_t *number,
                            GError **error)
{
    GError *fault = NULL;

    g_return_val_if_fail(engine != NULL && spec != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!snapshot_check_spec(spec, error) || !engine_check_caller(engine, "a snapshot", error))
        return false;
    for (uint32_t n_tries = 1; !take_once(engine, spec, number, &fault); n_tries++) {
        if (!snapshot_goes_again(engine, spec, n_tries, fault)) {
            g_propagate_error(error, fault);
            return false;
        }
        g_clear_error(&fault);
    }
    return true;
}
