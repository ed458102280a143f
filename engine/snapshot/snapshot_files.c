/* The files of a snapshot.
 *
 * The manifest is written when every file has reached the disk. It is made from the ends of all
 * files, so no node needs to tell another what it wrote.
 *
 * Threads: one at a time. */
#include "engine/snapshot/snapshot_files.h"

#include <string.h>

#include "engine/snapshot/part_slices.h"
#include "engine/snapshot/snapshot_owner.h"
#include "engine/snapshot/snapshot_text.h"
#include "engine/snapshot/written_parts.h"
#include "io/store/outside_requests.h"
#include "io/store/snapshot_folder.h"
#include "io/store/store_file.h"
#include "models/spec.h"
#include "models/storage/storage.h"

/* So many blocks for copies are kept ready while rows change, if they and the parts are large
 * enough to matter: the first Add to a fresh page waits until the kernel has cleared it. */
#define BLOCKS_AHEAD 8u
#define LEAST_READY_BYTES ((size_t)64 << 10)

/* ---- which tables ---- */

bool snapshot_check_table(const Table *table, GError **error)
{
    if (rubato_table_spec_holds_range(table->spec) ||
        storage_find(table->spec->storage)->list != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: its storage \"%s\" cannot list its keys, so no snapshot can have it",
                table->spec->name, table->spec->storage);
    return false;
}

static int compare_names(const void *a, const void *b)
{
    const Table *const *left = a, *const *right = b;

    return strcmp((*left)->spec->name, (*right)->spec->name);
}

void snapshot_sort_tables(GPtrArray *tables)
{
    g_ptr_array_sort(tables, compare_names);
}

void snapshot_writing_clear(RubatoEngine *engine, SnapshotWriting *writing)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < writing->tables->len; i++)
        engine_release_table(engine, g_ptr_array_index(writing->tables, i));
    pthread_mutex_unlock(&engine->lock);
    g_clear_pointer(&writing->tables, g_ptr_array_unref);
    g_clear_pointer(&writing->lock, writer_lock_release);
}

/* ---- on which one it builds ---- */

/* Whether the newest one was read, or is damaged. A file may be: then this snapshot has all rows.
 * An object of a bucket is as it was put; if it cannot be read, the server does not answer, and
 * nothing can be written there. */
static bool read_newest(const char *directory, uint64_t number, Manifest **newest, GError **error)
{
    g_autoptr(GError) fault = NULL;

    *newest = snapshot_folder_read(directory, number, &fault);
    if (*newest != NULL || !store_is_bucket(directory) ||
        !g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO))
        return true;
    g_propagate_error(error, g_steal_pointer(&fault));
    return false;
}

/* Before the cut, which it tells: whether this snapshot has all rows, or builds on the newest. */
static bool find_base(SnapshotWriting *writing, GError **error)
{
    const RubatoSnapshotSpec *const spec = writing->spec;
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(Manifest) newest = NULL;
    size_t n = 0;

    writing->cut.notes_changes = spec->full_every > 1;
    if (!writing->cut.notes_changes)
        return true;
    if (!rubato_snapshot_list(spec->directory, &numbers, &n, error) ||
        (n > 0 && !read_newest(spec->directory, numbers[n - 1], &newest, error)))
        return false;
    if (newest == NULL || newest->n_links + 1 >= spec->full_every)
        return true;
    writing->base = numbers[n - 1];
    writing->n_links = newest->n_links + 1;
    writing->cut.base = newest->seed;
    return true;
}

/* Nobody removes it during a snapshot but somebody outside of the run, who may not know of this
 * one. The next one finds another, or has all rows. */
static bool check_base(const SnapshotWriting *writing, GError **error)
{
    const char *const directory = writing->spec->directory;
    g_autoptr(GError) fault = NULL;
    g_autoptr(Manifest) base = snapshot_folder_read(directory, writing->base, &fault);

    if (base != NULL && base->seed == writing->cut.base)
        return true;
    if (base == NULL && !g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND)) {
        g_propagate_error(error, g_steal_pointer(&fault));
        return false;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "%s: snapshot %" G_GUINT64_FORMAT
                ", on which the present one builds, was removed or replaced meanwhile",
                directory, writing->base);
    return false;
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
        .admit = spec_admit_name(spec),
        .n_parts = table->map->n_parts,
    };
}

static bool take_tuned(uint32_t hyper, double value, void *writer, GError **error)
{
    return part_writer_tuned(writer, hyper, value, error);
}

static bool take_admission(const PartAdmission *admission, void *writer, GError **error)
{
    return part_writer_admission(writer, admission, error);
}

/* Versions of a stream are small, and each is made as fast as it can be. */
static bool has_memory_ready(const SnapshotWriting *writing)
{
    return writing->cut.whom != CHANGES_FOR_STREAM &&
           image_block_bytes(writing->cut.spill) >= LEAST_READY_BYTES;
}

static uint64_t count_row_bytes(const Table *table)
{
    return table->row_bytes + table->state_bytes + sizeof(RubatoKey);
}

/* How many blocks the copies of all parts can fill, if the others have as many rows as this one; at
 * most BLOCKS_AHEAD. Of less than half a block a part touches few pages. */
static size_t count_blocks_ahead(const PartSlices *slices, size_t block_bytes)
{
    const uint64_t n_bytes = slices->n_rows * count_row_bytes(slices->table);
    const uint64_t of_part = (n_bytes + block_bytes / 2) / block_bytes;

    return (size_t)MIN(of_part * slices->table->map->n_parts, BLOCKS_AHEAD);
}

/* Each row that changes before it is read costs the workers a copy. Where they change so slowly
 * that there are pauses, the disk may work meanwhile. */
static bool is_in_haste(const SnapshotWriting *writing, const PartSlices *slices)
{
    return slices->n_changes > 0 && !writing->pace.has_paused;
}

static bool write_rows(RubatoEngine *engine, SnapshotWriting *writing, PartSlices *slices,
                       PartWriter *writer, GError **error)
{
    SpillFile *const ready = has_memory_ready(writing) ? writing->cut.spill : NULL;
    bool has_rows_left = true;

    /* All parts have the same hyper-parameters. */
    if (slices->part == 0 && !part_slices_tuned(slices, take_tuned, writer, error))
        return false;
    if (!part_slices_admission(slices, take_admission, writer, error))
        return false;
    for (;;) {
        if (!part_slices_next(slices, error))
            return false;
        if (slices->rows.n == 0)
            return true;
        if (has_rows_left) /* then it stays as it is: the disk is told when all rows are read */
            part_writer_hold(writer, is_in_haste(writing, slices));
        has_rows_left = slices->image.has_rows_left;
        if (!part_writer_rows(writer, &slices->rows, error))
            return false;
        if (slices->n_changes > 0 && ready != NULL)
            spill_file_warm(ready, image_block_bytes(ready),
                            count_blocks_ahead(slices, image_block_bytes(ready)));
        if (!engine_cut_is_torn(engine)) /* then it fails, and others wait for that */
            write_pace_follow_slice(&writing->pace, slices->n_changes);
    }
}

/* Followers have a version as soon as it has its name, and not when the disk has it: that may take
 * a hundred milliseconds while others write. Whoever needs one after a crash of the machine finds
 * the last that is whole; snapshot_schedule_take_last has the disk take all of them. */
static bool is_for_kernel(const SnapshotWriting *writing)
{
    return writing->cut.whom == CHANGES_FOR_STREAM && writing->base != 0;
}

static bool write_part(RubatoEngine *engine, SnapshotWriting *writing, guint number, uint32_t part,
                       Server *server, WrittenParts *written, GError **error)
{
    const Table *table = g_ptr_array_index(writing->tables, number);
    const RubatoSnapshotTable spec = describe(table);
    const PartShape shape = manifest_shape(&spec);
    g_autofree char *folder = snapshot_folder_writing(writing->spec->directory, writing->seed);
    const SlicesOf rows = !writing->cut.notes_changes               ? SLICES_OF_ALL
                          : writing->cut.whom == CHANGES_FOR_STREAM ? SLICES_OF_STREAM
                                                                    : SLICES_OF_CHANGES;
    g_autofree char *path = NULL;
    g_autoptr(PartWriter) writer = NULL;
    PartSlices slices;
    bool ok;

    write_pace_begin_part(&writing->pace);
    if (!part_slices_init(&slices, table, part, server, rows, error))
        return false;
    path = slices.cover != NULL ? snapshot_folder_changes(folder, number, part, writing->cut.base)
                                : snapshot_folder_part(folder, number, part);
    writer = part_writer_new(path, writing->seed, writing->spec->packing, &shape, error);
    if (writer != NULL && is_for_kernel(writing))
        part_writer_leave_to_kernel(writer);
    ok = writer != NULL &&
         (slices.cover == NULL || part_writer_cover(writer, slices.cover, slices.n_rows, error)) &&
         write_rows(engine, writing, &slices, writer, error);
    part_slices_clear(&slices);
    return ok && written_parts_add(written, g_steal_pointer(&writer), table, part, server, error);
}

/* Whether it may take longer, to slow training down less. Not if workers wait for its end, at the
 * closed maps of tables without images, or followers, for a version. */
static bool is_patient(const SnapshotWriting *writing)
{
    const Cut *const cut = &writing->cut;
    bool waits = cut->whom == CHANGES_FOR_STREAM;

    for (size_t i = 0; i < cut->n_tables; i++)
        waits |= cut->tables[i].is_paused;
    return !waits;
}

static bool write_parts(RubatoEngine *engine, SnapshotWriting *writing, WrittenParts *written,
                        GError **error)
{
    for (guint number = 0; number < writing->tables->len; number++) {
        const Table *table = g_ptr_array_index(writing->tables, number);

        for (uint32_t part = 0; part < table->map->n_parts; part++) {
            const uint32_t server = part_map_server(table->map, part);

            for (uint32_t i = 0; i < engine->n_servers; i++)
                if (engine->servers[i].number == server &&
                    !write_part(engine, writing, number, part, &engine->servers[i], written, error))
                    return false;
        }
    }
    return true;
}

static bool write_all_parts(RubatoEngine *engine, SnapshotWriting *writing, GError **error)
{
    /* relaxed: snapshots come one after the other, and what leads to the next one orders it */
    const int64_t before_ns = atomic_load_explicit(&engine->written_ns, memory_order_relaxed);
    WrittenParts written;
    bool ok;

    write_pace_start(&writing->pace, engine->pace, is_patient(writing) ? writing->cut.spill : NULL,
                     before_ns);
    written_parts_init(&written, engine, &writing->pace);
    ok = write_parts(engine, writing, &written, error) && written_parts_sync(&written, error);
    written_parts_clear(&written);
    return ok;
}

static bool leads(const RubatoEngine *engine)
{
    return engine->self == engine->scheduler_node;
}

static bool write_files(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data,
                        GError **error)
{
    SnapshotWriting *writing = data;
    const char *directory = writing->spec->directory;

    bool ok;

    writing->seed = seed;
    if (cut->whom != CHANGES_FOR_STREAM && /* a task holds the lock of its stream */
        !snapshot_lock_directory(engine, directory, &writing->lock, error))
        return false;
    if (leads(engine))
        snapshot_folder_tidy(directory, writing->seed);
    ok = snapshot_folder_begin(directory, writing->seed, error);
    if (ok && leads(engine))
        outside_requests_tidy(directory); /* which has just been changed */
    ok = ok && write_all_parts(engine, writing, error);
    if (cut->whom != CHANGES_FOR_STREAM)
        atomic_store_explicit(&engine->written_ns, engine->pace->now_ns(engine->pace->data),
                              memory_order_relaxed); /* as in write_all_parts */
    if (!ok)
        g_prefix_error(error, "node %u: ", engine->id);
    return ok;
}

/* ---- the manifest ---- */

static bool add_parts(const SnapshotWriting *writing, Manifest *manifest, size_t number,
                      GError **error)
{
    ManifestTable *table = &manifest->tables[number];
    g_autofree char *folder = snapshot_folder_writing(writing->spec->directory, writing->seed);

    for (uint32_t part = 0; part < table->spec.n_parts; part++) {
        g_autofree char *changes = snapshot_folder_changes(folder, number, part, writing->cut.base);
        const bool has_changes = writing->base != 0 && snapshot_folder_has_file(changes);
        g_autofree char *path =
            has_changes ? g_steal_pointer(&changes) : snapshot_folder_part(folder, number, part);

        table->parts[part].has_changes = has_changes;
        if (has_changes)
            manifest->base = writing->base;
        if (!block_file_read_end(path, &table->parts[part].sum, &table->parts[part].n_rows,
                                 error)) {
            g_prefix_error(error, "another node has written a file that this one does not see as "
                                  "it should; the directory must be the same for all nodes: ");
            return false;
        }
    }
    return true;
}

static void take_cut(Scheduler *scheduler, int64_t now_ms, void *readers)
{
    (void)now_ms;
    *(GHashTable **)readers = scheduler_cut_readers(scheduler);
}

/* What the scheduler knows of readers since CUT has ended. */
static void add_readers(RubatoEngine *engine, Manifest *manifest)
{
    GHashTable *readers = NULL;
    GHashTableIter all;
    gpointer name, text;

    dispatch_look_at_scheduler(engine, take_cut, &readers);
    g_hash_table_iter_init(&all, readers);
    while (g_hash_table_iter_next(&all, &name, &text))
        manifest_add_reader(manifest, name, text);
    g_hash_table_unref(readers);
}

static bool commit_files(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    SnapshotWriting *writing = data;
    const RubatoSnapshotSpec *spec = writing->spec;
    g_autoptr(Manifest) manifest = NULL;
    g_autoptr(GError) fault = NULL;

    if (!leads(engine))
        return true;
    manifest = manifest_new(writing->seed, spec->packing, spec->note);
    for (guint i = 0; i < writing->tables->len; i++) {
        const Table *const is = g_ptr_array_index(writing->tables, i);
        RubatoSnapshotTable table = describe(is);

        table.clock = cut->tables[i].clock;
        manifest_add_table(manifest, &table)->layout = partition_digest(&is->partition);
        if (!add_parts(writing, manifest, i, error))
            return false;
    }
    if (manifest->base != 0) { /* a part that has changes needs it */
        if (!check_base(writing, error))
            return false;
        manifest->base_seed = cut->base;
        manifest->n_links = writing->n_links;
    }
    manifest->is_for_kernel = is_for_kernel(writing) && manifest->base != 0;
    if (cut->whom != CHANGES_FOR_STREAM) /* nobody goes on from a version of a stream */
        add_readers(engine, manifest);
    if (!snapshot_folder_commit(spec->directory, manifest, &writing->number, error))
        return false;
    if (!snapshot_folder_keep(spec->directory, spec->keep, &fault))
        g_warning("an old snapshot stays, although only %u are to be kept: %s", spec->keep,
                  fault->message);
    return true;
}

void snapshot_abandon(const RubatoEngine *engine, const SnapshotWriting *writing)
{
    if (leads(engine) && writing->seed != 0)
        snapshot_folder_abandon(writing->spec->directory, writing->seed);
}

SpillFile *snapshot_make_spill(const RubatoEngine *engine, const SnapshotWriting *writing)
{
    const char *const directory = writing->spec->directory;

    /* Copies are read back at once, so they are on a disk of this node. */
    return spill_file_new(store_is_bucket(directory) ? g_get_tmp_dir() : directory,
                          engine->copies_bytes);
}

/* ---- memory for copies ---- */

typedef struct {
    const Table *table;
    uint64_t n_rows;
} RowCount;

static void count_rows(Server *server, void *data)
{
    RowCount *const count = data;

    for (uint32_t part = 0; part < count->table->map->n_parts; part++) {
        const RubatoShard *const shard = server_find_shard(server, count->table->id, part);

        count->n_rows += shard != NULL ? shard_n_rows(shard) : 0;
    }
}

/* The bytes of the rows that this node has now. */
static uint64_t count_table_bytes(RubatoEngine *engine, const Table *table)
{
    RowCount count = { .table = table };

    for (uint32_t i = 0; i < engine->n_servers; i++)
        server_run_here(&engine->servers[i], count_rows, &count);
    return count.n_rows * count_row_bytes(table);
}

/* Those of a dense table, which say which rows have changed. */
static void ready_bits(const RubatoEngine *engine, const Table *table, SpillFile *spill)
{
    for (uint32_t part = 0; part < table->map->n_parts; part++)
        for (uint32_t i = 0; i < engine->n_servers; i++) {
            RubatoKey first;
            uint64_t n;

            if (engine->servers[i].number != part_map_server(table->map, part))
                continue;
            partition_range(&table->partition, part, &first, &n);
            spill_file_warm_zeros(spill, image_bits_bytes(n));
        }
}

static bool has_runs(RubatoEngine *engine)
{
    bool has;

    pthread_mutex_lock(&engine->lock);
    has = engine->runs->len > 0;
    pthread_mutex_unlock(&engine->lock);
    return has;
}

/* After find_base: for copies of rows that change while the snapshot is written, so that requests
 * need not wait for the kernel to find it. While no task runs nothing is copied. */
static void ready_memory(RubatoEngine *engine, const SnapshotWriting *writing)
{
    SpillFile *const spill = writing->cut.spill;
    const size_t block_bytes = image_block_bytes(spill);
    const uint64_t half_bytes = spill_file_most_bytes(spill) / 2;
    uint64_t n_bytes = 0;

    if (!has_memory_ready(writing) || !has_runs(engine))
        return;
    for (guint i = 0; i < writing->tables->len; i++) {
        const Table *const table = g_ptr_array_index(writing->tables, i);

        if (rubato_table_spec_holds_range(table->spec))
            ready_bits(engine, table, spill);
        n_bytes += count_table_bytes(engine, table);
    }
    if (writing->base == 0) /* of others, few rows are copied */
        spill_file_warm(spill, block_bytes, (size_t)(MIN(n_bytes, half_bytes) / block_bytes));
}

/* ---- the steps ---- */

static bool prepare_files(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    SnapshotWriting *const writing = data;

    (void)cut; /* writing's own */
    if (!find_base(writing, error)) {
        g_prefix_error(error, "node %u: ", engine->id);
        return false;
    }
    ready_memory(engine, writing);
    return true;
}

CutWork snapshot_work(SnapshotWriting *writing)
{
    return (CutWork){ prepare_files, write_files, commit_files, writing };
}

/* ---- requests from outside ---- */

void snapshot_begin_requests(const RubatoEngine *engine, SnapshotWriting *writing)
{
    if (leads(engine))
        writing->requests = outside_requests_list(writing->spec->directory);
}

void snapshot_answer_requests(SnapshotWriting *writing, const char *failure)
{
    if (writing->requests == NULL)
        return;
    outside_requests_answer(writing->spec->directory, writing->requests, writing->number, failure);
    g_clear_pointer(&writing->requests, g_ptr_array_unref);
}

/* ---- what is asked ---- */

bool snapshot_check_spec(const RubatoSnapshotSpec *spec, GError **error)
{
    const char *wrong = NULL;

    if (spec->directory == NULL || *spec->directory == '\0')
        wrong = "needs a directory";
    else if (spec->full_every > MANIFEST_MOST_LINKS)
        wrong = "has full_every of more than 9999";
    else if ((unsigned)spec->packing > RUBATO_PACKING_8BIT)
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

bool snapshot_check_once(const RubatoSnapshotSpec *spec, GError **error)
{
    if (!spec->again_after_loss)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "a snapshot for which no call waits cannot be taken again after a loss: "
                        "leave again_after_loss out");
    return false;
}

bool snapshot_goes_again(const RubatoEngine *engine, const RubatoSnapshotSpec *spec,
                         uint32_t n_tries, const GError *fault)
{
    return spec->again_after_loss && n_tries < engine->n_nodes &&
           g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
}

/* Appends the ids of the tables that the names, or of all; name: may be NULL. */
static bool list_tables(RubatoEngine *engine, const char *const *name, GArray *ids, GError **error)
{
    bool ok = true;

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->tables->len && name == NULL && ok; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);

        ok = snapshot_check_table(table, error);
        g_array_append_val(ids, table->id);
    }
    for (; name != NULL && *name != NULL && ok; name++) {
        const Table *const table = engine_find_table(engine, *name, error);

        ok = table != NULL && snapshot_check_table(table, error);
        for (guint i = 0; i < ids->len && ok; i++)
            if (g_array_index(ids, uint32_t, i) == table->id) {
                g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "a snapshot of table %s twice: name each table once", *name);
                ok = false;
            }
        if (ok)
            g_array_append_val(ids, table->id);
    }
    pthread_mutex_unlock(&engine->lock);
    return ok;
}

char *snapshot_write_ask(RubatoEngine *engine, const RubatoSnapshotSpec *spec, ChangesFor whom,
                         const char *const *names, GError **error)
{
    g_autoptr(GArray) ids = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    if (!snapshot_check_spec(spec, error) || !list_tables(engine, names, ids, error))
        return NULL;
    return snapshot_text_write(spec, whom, ids, error);
}
