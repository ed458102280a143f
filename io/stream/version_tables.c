/* The tables of a stream in memory. */
#include "io/stream/version_tables.h"

#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "io/store/snapshot.h"
#include "io/store/snapshot_folder.h"

/* ---- a whole version ---- */

static VersionShape find_shape(const RubatoSnapshotTable *table)
{
    const PartShape shape = manifest_shape(table);

    return (VersionShape){ .row_bytes = shape.row_bytes,
                           .value_bytes = shape.value_bytes,
                           .is_range = table->holds_range && shape.row_bytes > 0,
                           .first = table->first_key,
                           .n_keys = table->n_keys };
}

typedef struct {
    VersionRows *rows;
    uint32_t part;
} Put;

static bool put_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    const Put *const put = user_data;

    return version_rows_put(put->rows, put->part, rows, error);
}

/* A range has a row for each key. It is looked at before there is memory for the rows. */
static bool check_range(const RubatoSnapshotTable *table, const VersionShape *shape, GError **error)
{
    if (!shape->is_range || table->n_rows == table->n_keys)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "table %s: a range of %" G_GUINT64_FORMAT " keys has %" G_GUINT64_FORMAT " rows",
                table->name, table->n_keys, table->n_rows);
    return false;
}

static bool read_table(VersionTables *all, const RubatoSnapshot *snapshot, size_t number,
                       GError **error)
{
    const RubatoSnapshotTable *const from = rubato_snapshot_table(snapshot, number);
    const VersionShape shape = find_shape(from);
    VersionTable *const table = &all->tables[all->n_tables];

    if (!check_range(from, &shape, error))
        return false;
    table->rows = version_rows_new(&shape, error);
    if (table->rows == NULL) {
        g_prefix_error(error, "table %s: ", from->name);
        return false;
    }
    table->name = g_strdup(from->name);
    table->shape = (RubatoFollowedTable){ .dtype = from->dtype,
                                          .shape = from->shape,
                                          .width = from->width,
                                          .holds_range = from->holds_range,
                                          .first_key = from->first_key,
                                          .n_keys = from->n_keys };
    table->n_parts = from->n_parts;
    all->n_tables++;
    for (uint32_t part = 0; part < from->n_parts; part++) {
        Put put = { table->rows, part };

        if (!snapshot_read_part(snapshot, number, part,
                                &(PartTaker){ .rows = put_rows, .user_data = &put }, error))
            return false;
    }
    return true;
}

static bool has_name(const char *const *names, const char *name)
{
    return names == NULL || g_strv_contains(names, name);
}

static bool check_names(const RubatoSnapshot *snapshot, const char *const *names, GError **error)
{
    for (; names != NULL && *names != NULL; names++)
        if (rubato_snapshot_find_table(snapshot, *names) == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                        "version %" G_GUINT64_FORMAT " has no table %s",
                        rubato_snapshot_number(snapshot), *names);
            return false;
        }
    return true;
}

VersionTables *version_tables_read(const char *directory, uint64_t number, const char *const *names,
                                   GError **error)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, error);
    g_autoptr(VersionTables) all = NULL;

    if (snapshot == NULL || !check_names(snapshot, names, error))
        return NULL;

    const size_t n = rubato_snapshot_n_tables(snapshot);

    all = g_new0(VersionTables, 1);
    all->number = rubato_snapshot_number(snapshot);
    all->seed = snapshot_manifest(snapshot)->seed;
    all->time_us = rubato_snapshot_time_us(snapshot);
    all->tables = g_new0(VersionTable, n + 1);
    for (size_t i = 0; i < n; i++)
        if (has_name(names, rubato_snapshot_table(snapshot, i)->name) &&
            !read_table(all, snapshot, i, error))
            return NULL;
    return g_steal_pointer(&all);
}

void version_tables_free(VersionTables *all)
{
    if (all == NULL)
        return;
    for (size_t i = 0; i < all->n_tables; i++) {
        version_rows_free(all->tables[i].rows);
        g_free(all->tables[i].name);
    }
    g_free(all->tables);
    g_free(all);
}

static int compare_name(const void *name, const void *table)
{
    return strcmp(name, ((const VersionTable *)table)->name);
}

VersionTable *version_tables_find(const VersionTables *all, const char *name)
{
    return all->n_tables == 0
               ? NULL
               : bsearch(name, all->tables, all->n_tables, sizeof *all->tables, compare_name);
}

static bool is_same_shape(const RubatoFollowedTable *a, const RubatoFollowedTable *b)
{
    return a->dtype == b->dtype && a->shape == b->shape && a->width == b->width &&
           a->holds_range == b->holds_range && a->first_key == b->first_key &&
           a->n_keys == b->n_keys;
}

bool version_tables_check_same(const VersionTables *all, const VersionTables *other, GError **error)
{
    for (size_t i = 0; i < all->n_tables; i++) {
        const VersionTable *const was = &all->tables[i];
        const VersionTable *const is = version_tables_find(other, was->name);

        if (is != NULL && is_same_shape(&was->shape, &is->shape))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "table %s %s in version %" G_GUINT64_FORMAT
                    ", and this follower has it as it was in version %" G_GUINT64_FORMAT
                    ": begin another one",
                    was->name, is == NULL ? "is not" : "has another shape", other->number,
                    all->number);
        return false;
    }
    return true;
}

bool version_tables_have_parts(const VersionTables *all, const Manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_tables; i++) {
        const RubatoSnapshotTable *const is = &manifest->tables[i].spec;
        const VersionTable *const was = version_tables_find(all, is->name);

        if (was != NULL && was->n_parts != is->n_parts)
            return false;
    }
    return true;
}

/* ---- a version that builds on another ---- */

typedef struct {
    VersionChange *change;
    uint32_t part;
} PutChange;

static bool put_change(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    const PutChange *const put = user_data;

    return version_change_put(put->change, put->part, rows, error);
}

/* Where its files lie. */
typedef struct {
    const char *folder;
    const Manifest *manifest;
    size_t number; /* of the table there */
} StepTable;

static bool read_part(VersionChange *change, const StepTable *from, uint32_t part, GError **error)
{
    const ManifestTable *const table = &from->manifest->tables[from->number];
    const ManifestPart *const is = &table->parts[part];
    g_autofree char *path =
        is->has_changes
            ? snapshot_folder_changes(from->folder, from->number, part, from->manifest->base_seed)
            : snapshot_folder_part(from->folder, from->number, part);
    const PartFile file = { .path = path,
                            .seed = from->manifest->seed,
                            .sum = is->sum,
                            .shape = manifest_shape(&table->spec),
                            .n_rows = is->n_rows };
    PutChange put = { change, part };
    const PartTaker taker = { .rows = put_change, .user_data = &put };
    KeyCover cover;

    if (!part_rows_read(&file, &taker, is->has_changes ? &cover : NULL, error)) {
        g_prefix_error(error, "part %u: ", part);
        return false;
    }
    version_change_cover(change, part, is->has_changes ? &cover : NULL);
    return true;
}

static bool read_change(const VersionTable *table, const StepTable *from, VersionChange **change,
                        GError **error)
{
    const ManifestTable *const is = &from->manifest->tables[from->number];
    uint64_t n_rows = 0;

    *change = version_change_new(table->rows, table->n_parts);
    for (uint32_t part = 0; part < table->n_parts; part++) {
        if (!read_part(*change, from, part, error))
            return false;
        n_rows += is->parts[part].n_rows;
    }
    return version_change_finish(*change, n_rows, error);
}

/* The table of that name, of the same shape. */
static bool find_in_manifest(const VersionTable *table, const Manifest *manifest, size_t *number,
                             GError **error)
{
    for (size_t i = 0; i < manifest->n_tables; i++) {
        const RubatoSnapshotTable *const is = &manifest->tables[i].spec;
        const RubatoFollowedTable shape = { .dtype = is->dtype,
                                            .shape = is->shape,
                                            .width = is->width,
                                            .holds_range = is->holds_range,
                                            .first_key = is->first_key,
                                            .n_keys = is->n_keys };

        if (strcmp(is->name, table->name) == 0 && is->n_parts == table->n_parts &&
            is_same_shape(&shape, &table->shape)) {
            *number = i;
            return true;
        }
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "it is not there, or has another shape or number of parts");
    return false;
}

VersionStep *version_step_read(const VersionTables *all, const char *directory,
                               const Manifest *manifest, uint64_t number, GError **error)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autoptr(VersionStep) step = g_new0(VersionStep, 1);

    step->number = number;
    step->seed = manifest->seed;
    step->time_us = manifest->time_us;
    step->n = all->n_tables;
    step->changes = g_new0(VersionChange *, step->n + 1);
    for (size_t i = 0; i < step->n; i++) {
        const VersionTable *const table = &all->tables[i];
        StepTable from = { .folder = folder, .manifest = manifest };

        if (!find_in_manifest(table, manifest, &from.number, error) ||
            !read_change(table, &from, &step->changes[i], error)) {
            g_prefix_error(error, "version %" G_GUINT64_FORMAT ", table %s: ", number, table->name);
            return NULL;
        }
    }
    return g_steal_pointer(&step);
}

void version_step_free(VersionStep *step)
{
    if (step == NULL)
        return;
    for (size_t i = 0; i < step->n; i++)
        version_change_free(step->changes[i]);
    g_free(step->changes);
    g_free(step);
}

void version_step_swap(VersionTables *all, VersionStep *step)
{
    const uint64_t number = all->number, seed = all->seed;
    const int64_t time_us = all->time_us;

    for (size_t i = 0; i < step->n; i++)
        version_change_swap(step->changes[i]);
    all->number = step->number;
    all->seed = step->seed;
    all->time_us = step->time_us;
    step->number = number;
    step->seed = seed;
    step->time_us = time_us;
}

size_t version_step_bytes(const VersionStep *step)
{
    size_t n = 0;

    for (size_t i = 0; i < step->n; i++)
        n += version_change_bytes(step->changes[i]);
    return n;
}
