/* The public calls on a snapshot that is read. */
#include "io/store/snapshot.h"

#include <math.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "io/store/chain_rows.h"
#include "io/store/snapshot_folder.h"

struct RubatoSnapshot {
    uint64_t number;
    char *folder;
    Manifest *manifest;
    RubatoSnapshot *base; /* on which it builds; NULL: it holds all rows */
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

static RubatoSnapshot *open_one(const char *directory, uint64_t number, GError **error)
{
    Manifest *const manifest = snapshot_folder_read(directory, number, error);
    RubatoSnapshot *snapshot;

    if (manifest == NULL)
        return NULL;
    snapshot = g_new0(RubatoSnapshot, 1);
    snapshot->number = number;
    snapshot->folder = snapshot_folder_rows(directory, number, manifest->seed);
    snapshot->manifest = manifest;
    return snapshot;
}

/* One that is needed and not good is damage, also if it is not there. */
static bool fail_base(const RubatoSnapshot *snapshot, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "snapshot %" G_GUINT64_FORMAT " builds on snapshot %" G_GUINT64_FORMAT ", which %s",
                snapshot->number, snapshot->manifest->base, why);
    return false;
}

/* Whether the one on which it builds is the one that was there then, with the same tables, as far
 * as these have changes. */
static bool check_base(const RubatoSnapshot *snapshot, GError **error)
{
    const Manifest *const manifest = snapshot->manifest, *const base = snapshot->base->manifest;

    if (base->seed != manifest->base_seed || base->n_links + 1 != manifest->n_links)
        return fail_base(snapshot, "is another one than it was", error);
    for (size_t i = 0; i < manifest->n_tables; i++) {
        const ManifestTable *const is = &manifest->tables[i];
        const RubatoSnapshotTable *const was =
            rubato_snapshot_find_table(snapshot->base, is->spec.name);
        bool has_changes = false;

        for (uint32_t part = 0; part < is->spec.n_parts; part++)
            has_changes |= is->parts[part].has_changes;
        if (has_changes &&
            (was == NULL || was->dtype != is->spec.dtype || was->shape != is->spec.shape ||
             was->width != is->spec.width || was->state_width != is->spec.state_width ||
             was->n_parts != is->spec.n_parts))
            return fail_base(snapshot, "has other tables", error);
    }
    return true;
}

/* Opens those on which it builds. */
static bool open_bases(RubatoSnapshot *snapshot, const char *directory, GError **error)
{
    for (RubatoSnapshot *next = snapshot; next->manifest->base != 0; next = next->base) {
        g_autoptr(GError) fault = NULL;

        if (next->manifest->base >= next->number)
            return fail_base(next, "is no earlier one", error);
        next->base = open_one(directory, next->manifest->base, &fault);
        if (next->base == NULL) {
            g_autofree char *why = g_strdup_printf("cannot be read: %s", fault->message);

            return fail_base(next, why, error);
        }
        if (!check_base(next, error))
            return false;
    }
    return true;
}

RubatoSnapshot *rubato_snapshot_open(const char *directory, uint64_t number, GError **error)
{
    g_autoptr(RubatoSnapshot) snapshot = NULL;

    g_return_val_if_fail(directory != NULL, NULL);
    if (number == 0 && !find_newest(directory, &number, error))
        return NULL;
    snapshot = open_one(directory, number, error);
    if (snapshot == NULL || !open_bases(snapshot, directory, error))
        return NULL;
    return g_steal_pointer(&snapshot);
}

void rubato_snapshot_free(RubatoSnapshot *snapshot)
{
    while (snapshot != NULL) {
        RubatoSnapshot *const base = snapshot->base;

        manifest_free(snapshot->manifest);
        g_free(snapshot->folder);
        g_free(snapshot);
        snapshot = base;
    }
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

uint64_t rubato_snapshot_base(const RubatoSnapshot *snapshot)
{
    g_return_val_if_fail(snapshot != NULL, 0);
    return snapshot->manifest->base;
}

const Manifest *snapshot_manifest(const RubatoSnapshot *snapshot)
{
    return snapshot->manifest;
}

/* Reads the part's file of one of a chain. *has_more: the snapshot before has more rows. */
static bool read_link(const RubatoSnapshot *link, const ManifestTable *table, uint32_t part,
                      ChainRows *rows, bool *has_more, GError **error)
{
    const Manifest *const manifest = link->manifest;
    const size_t number = (size_t)(table - manifest->tables);
    const ManifestPart *const read = &table->parts[part];
    g_autofree char *path =
        read->has_changes ? snapshot_folder_changes(link->folder, number, part, manifest->base_seed)
                          : snapshot_folder_part(link->folder, number, part);
    const PartFile file = { .path = path,
                            .seed = manifest->seed,
                            .sum = read->sum,
                            .shape = manifest_shape(&table->spec),
                            .n_rows = read->n_rows };

    *has_more = read->has_changes;
    if (chain_rows_read(rows, &file, read->has_changes, error))
        return true;
    g_prefix_error(error, "snapshot %" G_GUINT64_FORMAT ", table %s, part %u: ", link->number,
                   table->spec.name, part);
    return false;
}

bool snapshot_read_part(const RubatoSnapshot *snapshot, size_t table, uint32_t part,
                        const PartTaker *taker, GError **error)
{
    const ManifestTable *const newest = &snapshot->manifest->tables[table], *next = newest;
    const PartShape shape = manifest_shape(&newest->spec);
    const RubatoSnapshot *link = snapshot;
    bool has_more = true, ok = true;
    ChainRows rows;

    chain_rows_init(&rows, &shape, taker);
    while (ok && has_more) {
        ok = read_link(link, next, part, &rows, &has_more, error);
        has_more = has_more && !taker->ends_at_rows;
        link = link->base; /* it has the table, which was checked when it was opened */
        next = has_more ? find_table(link, newest->spec.name) : NULL;
    }
    if (ok && !taker->ends_at_rows && rows.n_rows != newest->parts[part].n_rows) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "snapshot %" G_GUINT64_FORMAT ", table %s, part %u: with those on which it "
                    "builds it has %" G_GUINT64_FORMAT " rows of %" G_GUINT64_FORMAT,
                    snapshot->number, newest->spec.name, part, rows.n_rows,
                    newest->parts[part].n_rows);
        ok = false;
    }
    if (!ok && link != snapshot->base)
        g_prefix_error(error,
                       "snapshot %" G_GUINT64_FORMAT " builds on another: ", snapshot->number);
    chain_rows_clear(&rows);
    return ok;
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

/* Whether it, or one on which it builds, was rounded. */
static bool is_rounded(const RubatoSnapshot *snapshot)
{
    while (snapshot != NULL && snapshot->manifest->packing <= RUBATO_PACKING_ZSTD)
        snapshot = snapshot->base;
    return snapshot != NULL;
}

static void sum_loss(const RoundingLoss *loss, void *sum)
{
    rounding_loss_add(sum, loss);
}

bool rubato_snapshot_loss(const RubatoSnapshot *snapshot, const char *name,
                          RubatoSnapshotLoss *loss, GError **error)
{
    RoundingLoss sum = { .n_values = 0 };
    const PartTaker taker = { .loss = sum_loss, .user_data = &sum };
    const ManifestTable *table;

    g_return_val_if_fail(snapshot != NULL && name != NULL && loss != NULL, false);
    table = find_table(snapshot, name);
    if (table == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "snapshot %" G_GUINT64_FORMAT " has no table %s", snapshot->number, name);
        return false;
    }
    for (uint32_t part = 0; is_rounded(snapshot) && part < table->spec.n_parts; part++)
        if (!snapshot_read_part(snapshot, (size_t)(table - snapshot->manifest->tables), part,
                                &taker, error))
            return false;
    *loss = (RubatoSnapshotLoss){
        .largest = sum.largest,
        .root_mean_square = sum.n_values > 0 ? sqrt(sum.sum_of_squares / (double)sum.n_values) : 0,
        .n_values = sum.n_values,
    };
    return true;
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
