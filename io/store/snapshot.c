/* The public calls on a snapshot that is read. */
#include "io/store/snapshot.h"

#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "io/store/snapshot_folder.h"

struct RubatoSnapshot {
    uint64_t number;
    char *folder;
    Manifest *manifest;
};

static bool find_newest(const char *directory, uint64_t *number, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    if (n > 0)
        *number = numbers[n - 1];
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "%s: there is no snapshot in it",
                    directory);
    return n > 0;
}

RubatoSnapshot *rubato_snapshot_open(const char *directory, uint64_t number, GError **error)
{
    Manifest *manifest;
    RubatoSnapshot *snapshot;

    g_return_val_if_fail(directory != NULL, NULL);
    if (number == 0 && !find_newest(directory, &number, error))
        return NULL;
    manifest = snapshot_folder_read(directory, number, error);
    if (manifest == NULL)
        return NULL;
    snapshot = g_new0(RubatoSnapshot, 1);
    snapshot->number = number;
    snapshot->folder = snapshot_folder_whole(directory, number);
    snapshot->manifest = manifest;
    return snapshot;
}

void rubato_snapshot_free(RubatoSnapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    manifest_free(snapshot->manifest);
    g_free(snapshot->folder);
    g_free(snapshot);
}

uint64_t rubato_snapshot_number(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, 0);
    return snapshot->number;
}

int64_t rubato_snapshot_time_us(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, 0);
    return snapshot->manifest->time_us;
}

RubatoPacking rubato_snapshot_packing(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, RUBATO_PACKING_NONE);
    return snapshot->manifest->packing;
}

const char *rubato_snapshot_note(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, NULL);
    return snapshot->manifest->note;
}

size_t rubato_snapshot_n_tables(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, 0);
    return snapshot->manifest->n_tables;
}

const RubatoSnapshotTable *rubato_snapshot_table(const RubatoSnapshot *snapshot, size_t i)
{
    g_return_val_if_fail(snapshot != NULL, NULL);
    return i < snapshot->manifest->n_tables ? &snapshot->manifest->tables[i].spec : NULL;
}

static int compare_name(const void *name, const void *table)
{
    return strcmp(name, ((const ManifestTable *)table)->spec.name);
}

static const ManifestTable *find_table(const RubatoSnapshot *snapshot, const char *name)
{
    const Manifest *manifest = snapshot->manifest;

    return manifest->n_tables == 0 ? NULL
                                   : bsearch(name, manifest->tables, manifest->n_tables,
                                             sizeof *manifest->tables, compare_name);
}

const RubatoSnapshotTable *rubato_snapshot_find_table(const RubatoSnapshot *snapshot,
                                                      const char *name)
{
    const ManifestTable *table;

    g_return_val_if_fail(snapshot != NULL && name != NULL, NULL);
    table = find_table(snapshot, name);
    return table == NULL ? NULL : &table->spec;
}

bool snapshot_read_part(const RubatoSnapshot *snapshot, size_t table, uint32_t part,
                        const PartTaker *taker, GError **error)
{
    const ManifestTable *read = &snapshot->manifest->tables[table];
    const PartShape shape = manifest_shape(&read->spec);
    g_autofree char *path = snapshot_folder_part(snapshot->folder, table, part);

    if (part_rows_read(path, snapshot->manifest->seed, &read->parts[part].sum, &shape,
                       read->parts[part].n_rows, taker, error))
        return true;
    g_prefix_error(error, "snapshot %" G_GUINT64_FORMAT ", table %s, part %u: ", snapshot->number,
                   read->spec.name, part);
    return false;
}

bool rubato_snapshot_read_part(const RubatoSnapshot *snapshot, const char *name, uint32_t part,
                               RubatoSnapshotRowsFunc function, void *user_data, GError **error)
{
    const ManifestTable *table;

    g_return_val_if_fail(snapshot != NULL && name != NULL, false);
    table = find_table(snapshot, name);
    if (table == NULL || part >= table->spec.n_parts) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "snapshot %" G_GUINT64_FORMAT " has no part %u of a table %s", snapshot->number,
                    part, name);
        return false;
    }
    return snapshot_read_part(snapshot, (size_t)(table - snapshot->manifest->tables), part,
                              &(PartTaker){ .rows = function, .user_data = user_data }, error);
}

bool rubato_snapshot_verify(const RubatoSnapshot *snapshot, GError **error)
{
    const PartTaker nobody = { .rows = NULL };

    g_return_val_if_fail(snapshot != NULL, false);
    for (size_t i = 0; i < snapshot->manifest->n_tables; i++)
        for (uint32_t part = 0; part < snapshot->manifest->tables[i].spec.n_parts; part++)
            if (!snapshot_read_part(snapshot, i, part, &nobody, error))
                return false;
    return true;
}
