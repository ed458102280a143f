/* Makes one snapshot of a chain: the newest one again, with all rows. It is written as an engine
 * writes its own, so a crash leaves the chain as it was. */
#include "io/store/snapshot.h"

#include <rubato/error.h>

#include "io/store/snapshot_folder.h"
#include "io/store/writer_lock.h"

typedef struct {
    const char *directory;
    const RubatoSnapshot *from;
    Manifest *manifest;
} Compacting;

static bool write_rows(const RubatoSnapshotRows *rows, void *writer, GError **error)
{
    return part_writer_rows(writer, rows, error);
}

static bool write_tuned(uint32_t hyper, double value, void *writer, GError **error)
{
    return part_writer_tuned(writer, hyper, value, error);
}

static bool write_admission(const PartAdmission *admission, void *writer, GError **error)
{
    return part_writer_admission(writer, admission, error);
}

static void write_loss(const RoundingLoss *loss, void *writer)
{
    part_writer_add_loss(writer, loss);
}

static bool write_part(const Compacting *compacting, size_t table, uint32_t part, GError **error)
{
    const Manifest *const manifest = compacting->manifest;
    const PartShape shape = manifest_shape(&manifest->tables[table].spec);
    ManifestPart *const written = &manifest->tables[table].parts[part];
    g_autofree char *folder = snapshot_folder_writing(compacting->directory, manifest->seed);
    g_autofree char *path = snapshot_folder_part(folder, table, part);
    g_autoptr(PartWriter) writer =
        part_writer_new(path, manifest->seed, manifest->packing, &shape, error);
    const PartTaker taker = { .rows = write_rows,
                              .tuned = write_tuned,
                              .admission = write_admission,
                              .loss = write_loss,
                              .user_data = writer };

    return writer != NULL && snapshot_read_part(compacting->from, table, part, &taker, error) &&
           part_writer_finish(writer, error) &&
           block_file_read_end(path, &written->sum, &written->n_rows, error);
}

static bool write_whole(const Compacting *compacting, uint64_t *number, GError **error)
{
    const Manifest *const from = snapshot_manifest(compacting->from);

    snapshot_folder_tidy(compacting->directory, compacting->manifest->seed);
    if (!snapshot_folder_begin(compacting->directory, compacting->manifest->seed, error))
        return false;
    for (size_t i = 0; i < from->n_tables; i++) {
        manifest_add_table(compacting->manifest, &from->tables[i].spec)->layout =
            from->tables[i].layout;
        for (uint32_t part = 0; part < from->tables[i].spec.n_parts; part++)
            if (!write_part(compacting, i, part, error))
                return false;
    }
    for (size_t i = 0; i < from->n_readers; i++)
        manifest_add_reader(compacting->manifest, from->readers[i].name, from->readers[i].text);
    return snapshot_folder_commit(compacting->directory, compacting->manifest, number, error);
}

static bool compact(const char *directory, uint32_t keep, uint64_t *number, GError **error)
{
    g_autoptr(RubatoSnapshot) newest = NULL;
    g_autoptr(Manifest) manifest = NULL;
    uint64_t seed, written;

    newest = rubato_snapshot_open(directory, 0, error);
    if (newest == NULL)
        return false;
    written = rubato_snapshot_number(newest);
    if (rubato_snapshot_base(newest) != 0) {
        const Manifest *const from = snapshot_manifest(newest);

        if (!snapshot_folder_draw_seed(&seed, error))
            return false;
        manifest = manifest_new(seed, from->packing, from->note);
        manifest->time_us = from->time_us;
        if (!write_whole(&(Compacting){ directory, newest, manifest }, &written, error)) {
            snapshot_folder_abandon(directory, seed);
            return false;
        }
    }
    if (!snapshot_folder_keep(directory, keep, error)) {
        g_prefix_error(
            error, "snapshot %" G_GUINT64_FORMAT " has all rows now, but old ones stay: ", written);
        return false;
    }
    if (number != NULL)
        *number = written;
    return true;
}

bool rubato_snapshot_compact(const char *directory, uint32_t keep, uint64_t *number, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    WriterLock *lock;
    size_t n;

    g_return_val_if_fail(directory != NULL, false);
    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    if (n == 0) { /* nothing is left in it, and it is not made */
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "%s: there is no snapshot in it",
                    directory);
        return false;
    }
    lock = writer_lock_take(directory, "makes one snapshot of many", error);
    const bool ok = lock != NULL && compact(directory, keep, number, error);
    writer_lock_release(lock);
    return ok;
}
