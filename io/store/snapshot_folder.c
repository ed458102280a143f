/* Directories of snapshots: what is the same wherever they lie. */
#include "io/store/snapshot_folder.h"

#include <errno.h>
#include <rubato/error.h>
#include <stdlib.h>

#include "io/kernel_random.h"
#include "io/store/folder_ops.h"
#include "io/store/store_file.h"

static const FolderWriteOps *write_ops(const char *directory)
{
    return store_is_bucket(directory) ? &s3_write_ops : &directory_write_ops;
}

static const FolderReadOps *read_ops(const char *directory)
{
    return store_is_bucket(directory) ? &s3_read_ops : &directory_read_ops;
}

/* ---- names ---- */

char *snapshot_folder_writing(const char *directory, uint64_t seed)
{
    return write_ops(directory)->writing(directory, seed);
}

char *snapshot_folder_rows(const char *directory, uint64_t number, uint64_t seed)
{
    return read_ops(directory)->rows(directory, number, seed);
}

char *snapshot_folder_whole(const char *directory, uint64_t number)
{
    return g_strdup_printf("%s/snapshot-%06" G_GUINT64_FORMAT, directory, number);
}

char *snapshot_folder_part(const char *folder, size_t table, uint32_t part)
{
    return g_strdup_printf("%s/%zu.%u.rows", folder, table, part);
}

char *snapshot_folder_changes(const char *folder, size_t table, uint32_t part, uint64_t base_seed)
{
    return g_strdup_printf("%s/%zu.%u.changes-%016" G_GINT64_MODIFIER "x", folder, table, part,
                           base_seed);
}

bool snapshot_folder_has_file(const char *path)
{
    return read_ops(path)->has_file(path);
}

/* ---- writing ---- */

bool snapshot_folder_draw_seed(uint64_t *seed, GError **error)
{
    if (kernel_random(seed))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "the kernel gives no random bytes for a snapshot: %s", g_strerror(errno));
    return false;
}

bool snapshot_folder_make_directory(const char *directory, GError **error)
{
    return write_ops(directory)->make(directory, error);
}

bool snapshot_folder_begin(const char *directory, uint64_t seed, GError **error)
{
    return write_ops(directory)->begin(directory, seed, error);
}

static bool find_next(const char *directory, uint64_t *number, GError **error)
{
    g_autoptr(GArray) used = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    uint64_t last = 0;

    if (!write_ops(directory)->list_used(directory, used, error))
        return false;
    for (guint i = 0; i < used->len; i++) {
        const uint64_t one = g_array_index(used, uint64_t, i);

        last = MAX(last, one);
    }
    *number = last + 1;
    if (last < MOST_NUMBER)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "%s: there is no number left for another snapshot", directory);
    return false;
}

bool snapshot_folder_commit(const char *directory, const Manifest *manifest, uint64_t *number,
                            GError **error)
{
    uint64_t next;

    if (!find_next(directory, &next, error) ||
        !write_ops(directory)->commit(directory, manifest, next, error))
        return false;
    *number = next;
    return true;
}

void snapshot_folder_abandon(const char *directory, uint64_t seed)
{
    write_ops(directory)->abandon(directory, seed);
}

void snapshot_folder_tidy(const char *directory, uint64_t seed)
{
    write_ops(directory)->tidy(directory, seed);
}

/* The first one that a snapshot needs: itself, or the one with all rows. An error: it cannot be
 * read, or is no longer what it builds on. */
static bool find_first(const char *directory, uint64_t number, uint64_t *first, GError **error)
{
    uint64_t seed = 0;

    for (uint64_t next = number; next != 0;) {
        g_autoptr(Manifest) manifest = snapshot_folder_read(directory, next, error);

        if (manifest == NULL)
            return false;
        if (manifest->base >= next || (next != number && manifest->seed != seed)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s: snapshot %" G_GUINT64_FORMAT
                        " is not the one on which a newer one builds",
                        directory, next);
            return false;
        }
        *first = next;
        next = manifest->base;
        seed = manifest->base_seed;
    }
    return true;
}

/* A chain has no gaps: each builds on the newest one before it. So if a snapshot is needed, those
 * between it and the one that needs it are, too; and what a newer one needs before the oldest that
 * is kept, this one needs as well. The newest go first: what is left at any moment has all that it
 * needs. */
bool snapshot_folder_keep(const char *directory, uint32_t keep, GError **error)
{
    const FolderWriteOps *const ops = write_ops(directory);
    g_autofree uint64_t *numbers = NULL;
    uint64_t first = 0;
    size_t n, n_older;

    if (keep == 0)
        return true;
    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    n_older = n > keep ? n - keep : 0;
    if (n_older > 0 && !find_first(directory, numbers[n_older], &first, error))
        return false;
    for (size_t i = n_older; i > 0; i--)
        if (numbers[i - 1] < first && !ops->remove(directory, numbers[i - 1], error))
            return false;
    return true;
}

/* ---- finding ---- */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* (numbers: transfer full) */
static void give_sorted(GArray *numbers, uint64_t **sorted, size_t *n)
{
    if (numbers->len > 1)
        qsort(numbers->data, numbers->len, sizeof(uint64_t), compare_numbers);
    *n = numbers->len;
    *sorted = (uint64_t *)(void *)g_array_free(numbers, FALSE);
}

bool rubato_snapshot_list(const char *directory, uint64_t **numbers, size_t *n, GError **error)
{
    g_autoptr(GArray) found = NULL;

    g_return_val_if_fail(directory != NULL && numbers != NULL && n != NULL, false);
    found = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    if (!read_ops(directory)->list(directory, found, error))
        return false;
    give_sorted(g_steal_pointer(&found), numbers, n);
    return true;
}

bool rubato_snapshot_list_torn(const char *directory, uint64_t **numbers, size_t *n, GError **error)
{
    g_autoptr(GArray) found = NULL;

    g_return_val_if_fail(directory != NULL && numbers != NULL && n != NULL, false);
    const FolderReadOps *const ops = read_ops(directory);
    found = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    if (ops->list_torn != NULL && !ops->list_torn(directory, found, error))
        return false;
    give_sorted(g_steal_pointer(&found), numbers, n);
    return true;
}

Manifest *snapshot_folder_read(const char *directory, uint64_t number, GError **error)
{
    return read_ops(directory)->read(directory, number, error);
}
