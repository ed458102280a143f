/* Writing a snapshot: three collective calls. The first one cuts the tables (snapshot_cut.c). In
 * the second, each node writes the parts that its servers have. In the third, the scheduler's node
 * looks at the ends of all files, writes the manifest and gives the folder its name. So the
 * manifest is written when every file has reached the disk, and no node needs to tell another what
 * it wrote.
 *
 * Adds of the engine's own calls return when they are in the tables, and each node has made them
 * before it comes here.
 *
 * Threads: that of the engine's calls. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "engine/engine_private.h"
#include "engine/snapshot/part_slices.h"
#include "engine/snapshot/snapshot_cut.h"
#include "io/store/snapshot_folder.h"
#include "models/spec.h"
#include "models/storage/storage.h"

#include <rubato/snapshot.h>

typedef struct {
    const RubatoSnapshotSpec *spec;
    GPtrArray *tables; /* of Table, held, by name */
    Cut cut;
    uint64_t seed;   /* of this snapshot, from GO on */
    uint64_t number; /* on the scheduler's node, when it is whole */
} Writing;

/* ---- which tables ---- */

static int compare_names(const void *a, const void *b)
{
    const Table *const *left = a, *const *right = b;

    return strcmp((*left)->spec->name, (*right)->spec->name);
}

static bool add_table(RubatoEngine *engine, Writing *writing, const char *name, GError **error)
{
    Table *table = engine_hold_table(engine, name, error);

    if (table == NULL)
        return false;
    g_ptr_array_add(writing->tables, table);
    if (rubato_table_spec_holds_range(table->spec) ||
        storage_find(table->spec->storage)->list != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: its storage \"%s\" cannot list its keys, so no snapshot can have it",
                name, table->spec->storage);
    return false;
}

static bool add_tables(RubatoEngine *engine, Writing *writing, GError **error)
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
    g_ptr_array_sort(writing->tables, compare_names);
    for (guint i = 1; i < writing->tables->len && ok; i++)
        if (writing->tables->pdata[i - 1] == writing->tables->pdata[i]) {
            const Table *table = writing->tables->pdata[i];

            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "a snapshot of table %s twice: name each table once", table->spec->name);
            ok = false;
        }
    return ok;
}

static void release_tables(RubatoEngine *engine, Writing *writing)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < writing->tables->len; i++)
        engine_release_table(engine, g_ptr_array_index(writing->tables, i));
    pthread_mutex_unlock(&engine->lock);
    g_ptr_array_unref(writing->tables);
}

/* ---- the files of this node's parts ---- */

static RubatoSnapshotTable describe(const Table *table)
{
    const RubatoTableSpec *spec = table->spec;
    const bool holds_range = rubato_table_spec_holds_range(spec);

    return (RubatoSnapshotTable){
        .name = spec->name,
        .dtype = spec->dtype,
        .shape = spec->shape,
        .width = spec_width(spec),
        .storage = spec_storage_name(spec),
        .holds_range = holds_range,
        .first_key = holds_range ? spec->first_key : 0,
        .n_keys = holds_range ? spec->n_keys : 0,
        .update = spec_update_name(spec),
        .state_width = (uint32_t)(table->state_bytes / rubato_dtype_size(spec->dtype)),
        .n_parts = table->map->n_parts,
    };
}

static bool take_tuned(uint32_t hyper, double value, void *writer, GError **error)
{
    return part_writer_tuned(writer, hyper, value, error);
}

static bool write_rows(PartSlices *slices, PartWriter *writer, GError **error)
{
    /* All parts have the same hyper-parameters. */
    if (slices->part == 0 && !part_slices_tuned(slices, take_tuned, writer, error))
        return false;
    for (;;) {
        if (!part_slices_next(slices, error))
            return false;
        if (slices->rows.n == 0)
            return part_writer_finish(writer, error);
        if (!part_writer_rows(writer, &slices->rows, error))
            return false;
    }
}

static bool write_part(const Writing *writing, guint number, uint32_t part, Server *server,
                       GError **error)
{
    const Table *table = g_ptr_array_index(writing->tables, number);
    const RubatoSnapshotTable spec = describe(table);
    const PartShape shape = manifest_shape(&spec);
    g_autofree char *folder = snapshot_folder_writing(writing->spec->directory, writing->seed);
    g_autofree char *path = snapshot_folder_part(folder, number, part);
    g_autoptr(PartWriter) writer = NULL;
    PartSlices slices;
    bool ok;

    if (!part_slices_init(&slices, table, part, server, error))
        return false;
    writer = part_writer_new(path, writing->seed, writing->spec->packing, &shape, error);
    ok = writer != NULL && write_rows(&slices, writer, error);
    part_slices_clear(&slices);
    return ok;
}

static bool write_parts(RubatoEngine *engine, const Writing *writing, GError **error)
{
    for (guint number = 0; number < writing->tables->len; number++) {
        const Table *table = g_ptr_array_index(writing->tables, number);

        for (uint32_t part = 0; part < table->map->n_parts; part++) {
            const uint32_t server = part_map_server(table->map, part);

            for (uint32_t i = 0; i < engine->n_servers; i++)
                if (engine->servers[i].number == server &&
                    !write_part(writing, number, part, &engine->servers[i], error))
                    return false;
        }
    }
    return true;
}

static bool leads(const RubatoEngine *engine)
{
    return engine->self == engine->scheduler_node;
}

static bool perform_write(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Writing *writing = data;
    const char *directory = writing->spec->directory;

    writing->seed = go->hash_seed;
    if (leads(engine))
        snapshot_folder_tidy(directory, writing->seed);
    if (snapshot_folder_begin(directory, writing->seed, error) &&
        write_parts(engine, writing, error))
        return true;
    g_prefix_error(error, "node %u: ", engine->id);
    return false;
}

/* ---- the manifest ---- */

static bool add_parts(const Writing *writing, Manifest *manifest, size_t number, GError **error)
{
    ManifestTable *table = &manifest->tables[number];
    g_autofree char *folder = snapshot_folder_writing(writing->spec->directory, writing->seed);

    for (uint32_t part = 0; part < table->spec.n_parts; part++) {
        g_autofree char *path = snapshot_folder_part(folder, number, part);

        if (!block_file_read_end(path, &table->parts[part].sum, &table->parts[part].n_rows,
                                 error)) {
            g_prefix_error(error, "another node has written a file that this one does not see as "
                                  "it should; the directory must be the same for all nodes: ");
            return false;
        }
    }
    return true;
}

static bool perform_commit(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Writing *writing = data;
    const RubatoSnapshotSpec *spec = writing->spec;
    g_autoptr(Manifest) manifest = NULL;
    g_autoptr(GError) fault = NULL;

    (void)go;
    if (!leads(engine))
        return true;
    manifest = manifest_new(writing->seed, spec->packing, spec->note);
    for (guint i = 0; i < writing->tables->len; i++) {
        RubatoSnapshotTable table = describe(g_ptr_array_index(writing->tables, i));

        table.clock = writing->cut.tables[i].clock;
        manifest_add_table(manifest, &table);
        if (!add_parts(writing, manifest, i, error))
            return false;
    }
    if (!snapshot_folder_commit(spec->directory, manifest, &writing->number, error))
        return false;
    if (!snapshot_folder_keep(spec->directory, spec->keep, &fault))
        g_warning("an old snapshot stays, although only %u are to be kept: %s", spec->keep,
                  fault->message);
    return true;
}

/* ---- the call ---- */

static bool check_spec(const RubatoSnapshotSpec *spec, GError **error)
{
    const char *wrong = NULL;

    if (spec->directory == NULL || *spec->directory == '\0')
        wrong = "needs a directory";
    else if (spec->packing != RUBATO_PACKING_NONE && spec->packing != RUBATO_PACKING_ZSTD)
        wrong = "has a packing that there is not";
    else if (spec->note != NULL && strlen(spec->note) > MANIFEST_MOST_NOTE)
        wrong = "has a note of more than 64 KiB";
    else if (spec->note != NULL && !g_utf8_validate(spec->note, -1, NULL))
        wrong = "has a note that is no UTF-8";
    if (wrong == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "a snapshot %s", wrong);
    return false;
}

/* What all nodes must agree on. (transfer full) */
static char *describe_call(const Writing *writing)
{
    const RubatoSnapshotSpec *spec = writing->spec;
    g_autoptr(GString) text = g_string_new("tables");

    for (guint i = 0; i < writing->tables->len; i++) {
        const Table *table = g_ptr_array_index(writing->tables, i);

        g_string_append_printf(text, " %s", table->spec->name);
    }
    g_string_append_printf(text, ", packing %d, keep %u, note %s", (int)spec->packing, spec->keep,
                           spec->note != NULL ? spec->note : "");
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static bool draw_seed(uint64_t *seed, GError **error)
{
    if (getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "the kernel gives no random bytes for a snapshot: %s", g_strerror(errno));
    return false;
}

static bool write_whole(RubatoEngine *engine, Writing *writing, GError **error)
{
    g_autofree char *text = g_strdup_printf("a snapshot in %s", writing->spec->directory);
    g_autofree char *manifest = g_strdup_printf("the manifest of %s", text);
    g_autofree char *files = g_strdup_printf("the files of %s", text);
    g_autofree char *detail = describe_call(writing);
    CollectiveCall call = { .what = CONTROL_CALL_WRITE,
                            .text = files,
                            .detail = detail,
                            .perform = perform_write,
                            .data = writing };
    bool ok;

    if (!draw_seed(&call.seed, error))
        return false;
    cut_init(&writing->cut, writing->tables);
    ok = cut_make(engine, &writing->cut, text, detail, error) && collective(engine, &call, error);
    if (ok) {
        call.text = manifest;
        call.perform = perform_commit;
        ok = collective(engine, &call, error);
    }
    /* The verdict waits for all nodes, so nobody writes there any more. */
    if (!ok && leads(engine) && writing->seed != 0)
        snapshot_folder_abandon(writing->spec->directory, writing->seed);
    cut_clear(engine, &writing->cut);
    return ok;
}

/* Other nodes than the scheduler's find the newest number: nobody else writes there. */
static bool find_number(Writing *writing, GError **error)
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

bool rubato_engine_snapshot(RubatoEngine *engine, const RubatoSnapshotSpec *spec, uint64_t *number,
                            GError **error)
{
    Writing writing = { .spec = spec };
    bool ok;

    g_return_val_if_fail(engine != NULL && spec != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!check_spec(spec, error) || !engine_check_caller(engine, "a snapshot", error))
        return false;
    writing.tables = g_ptr_array_new();
    ok = add_tables(engine, &writing, error) && write_whole(engine, &writing, error) &&
         find_number(&writing, error);
    release_tables(engine, &writing);
    if (ok && number != NULL)
        *number = writing.number;
    return ok;
}
