/* The folders of a directory of snapshots.
 *
 * The order of what reaches the disk: each part's bytes (block_writer.c); the names of the parts;
 * the manifest's bytes; its name; the folder's name. A crash between two of them leaves a folder
 * that is not yet, or wholly, a snapshot. */
#include "io/store/snapshot_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/kernel_random.h"
#include "io/store/spill_file.h"

#define WHOLE "snapshot-"
#define WRITING ".writing-"
#define REMOVING ".removing-"

/* The longest manifest that is read: one of the most tables and parts is far shorter. */
#define MOST_MANIFEST ((size_t)1 << 30)

static bool fail(const char *path, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be %s: %s", path, what,
                g_strerror(errno));
    return false;
}

char *snapshot_folder_writing(const char *directory, uint64_t seed)
{
    return g_strdup_printf("%s/" WRITING "%016" G_GINT64_MODIFIER "x", directory, seed);
}

char *snapshot_folder_whole(const char *directory, uint64_t number)
{
    return g_strdup_printf("%s/" WHOLE "%06" G_GUINT64_FORMAT, directory, number);
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

/* ---- system calls ---- */

static bool make_folder(const char *path, GError **error)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST || fail(path, "created", error);
}

/* Has the disk take the names in a folder. */
static bool sync_folder(const char *path, GError **error)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok;

    if (fd < 0)
        return fail(path, "opened", error);
    ok = fsync(fd) == 0 || fail(path, "synchronised with the disk", error);
    close(fd);
    return ok;
}

static bool write_text(int fd, const char *path, const char *text, GError **error)
{
    for (size_t n = strlen(text); n > 0;) {
        const ssize_t written = write(fd, text, n);

        if (written < 0 && errno == EINTR)
            continue;
        if (written == 0) /* no file system does so; it would never end */
            errno = ENOSPC;
        if (written <= 0)
            return fail(path, "written", error);
        text += written;
        n -= (size_t)written;
    }
    return fsync(fd) == 0 || fail(path, "synchronised with the disk", error);
}

static bool write_file(const char *path, const char *text, GError **error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok;

    if (fd < 0)
        return fail(path, "created", error);
    ok = write_text(fd, path, text, error);
    if (close(fd) != 0 && ok)
        ok = fail(path, "closed", error);
    return ok;
}

static bool rename_path(const char *from, const char *to, GError **error)
{
    if (rename(from, to) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be renamed to %s: %s", from, to,
                g_strerror(errno));
    return false;
}

/* Removes a folder of files, as far as it can. */
static void remove_folder(const char *path)
{
    GDir *dir = g_dir_open(path, 0, NULL);

    if (dir != NULL) {
        for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
            g_autofree char *file = g_build_filename(path, name, NULL);

            (void)unlink(file);
        }
        g_dir_close(dir);
    }
    (void)rmdir(path);
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
    return make_folder(directory, error);
}

bool snapshot_folder_begin(const char *directory, uint64_t seed, GError **error)
{
    g_autofree char *folder = snapshot_folder_writing(directory, seed);

    return make_folder(directory, error) && make_folder(folder, error);
}

/* The manifest, and before it the names of the parts. */
static bool write_manifest(const char *folder, const Manifest *manifest, GError **error)
{
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *fresh = g_strconcat(path, ".new", NULL);
    g_autofree char *text = manifest_text(manifest);

    return sync_folder(folder, error) && write_file(fresh, text, error) &&
           rename_path(fresh, path, error) && sync_folder(folder, error);
}

static bool find_next(const char *directory, uint64_t *number, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, error))
        return false;
    *number = n == 0 ? 1 : numbers[n - 1] + 1;
    return true;
}

bool snapshot_folder_commit(const char *directory, const Manifest *manifest, uint64_t *number,
                            GError **error)
{
    g_autofree char *folder = snapshot_folder_writing(directory, manifest->seed);
    uint64_t next;

    if (!write_manifest(folder, manifest, error) || !find_next(directory, &next, error))
        return false;

    g_autofree char *whole = snapshot_folder_whole(directory, next);

    if (!rename_path(folder, whole, error))
        return false;
    if (!sync_folder(directory, error)) {
        /* Nobody may rely on a name that may be gone after a crash. */
        (void)rename(whole, folder);
        return false;
    }
    *number = next;
    return true;
}

void snapshot_folder_abandon(const char *directory, uint64_t seed)
{
    g_autofree char *folder = snapshot_folder_writing(directory, seed);

    remove_folder(folder);
}

void snapshot_folder_tidy(const char *directory, uint64_t seed)
{
    g_autofree char *own = snapshot_folder_writing(directory, seed);
    GDir *dir = g_dir_open(directory, 0, NULL);

    if (dir == NULL)
        return;
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *folder = g_strconcat(directory, "/", name, NULL);

        if ((g_str_has_prefix(name, WRITING) || g_str_has_prefix(name, REMOVING)) &&
            strcmp(folder, own) != 0)
            remove_folder(folder);
        if (g_str_has_prefix(name, SPILL_FILE_PREFIX))
            (void)unlink(folder);
    }
    g_dir_close(dir);
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

static bool remove_whole(const char *directory, uint64_t number, GError **error)
{
    g_autofree char *whole = snapshot_folder_whole(directory, number);
    g_autofree char *removed =
        g_strdup_printf("%s/" REMOVING "%06" G_GUINT64_FORMAT, directory, number);

    /* At one moment it is there no more. */
    if (!rename_path(whole, removed, error))
        return false;
    remove_folder(removed);
    return true;
}

/* A chain has no gaps: each builds on the newest one before it. So if a snapshot is needed, those
 * between it and the one that needs it are, too; and what a newer one needs before the oldest that
 * is kept, this one needs as well. The newest go first: what is left at any moment has all that it
 * needs. */
bool snapshot_folder_keep(const char *directory, uint32_t keep, GError **error)
{
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
        if (numbers[i - 1] < first && !remove_whole(directory, numbers[i - 1], error))
            return false;
    return true;
}

/* ---- finding ---- */

/* The number in the name of a whole snapshot's folder. */
static bool read_number(const char *name, uint64_t *number)
{
    guint64 found;

    if (!g_str_has_prefix(name, WHOLE) ||
        !g_ascii_string_to_unsigned(name + strlen(WHOLE), 10, 1, UINT64_MAX - 1, &found, NULL))
        return false;
    *number = found;
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* Folders of the same number but another name, such as snapshot-12, are not of this library. */
static bool is_snapshot(const char *directory, const char *name, uint64_t *number)
{
    if (!read_number(name, number))
        return false;

    g_autofree char *folder = snapshot_folder_whole(directory, *number);
    g_autofree char *manifest = g_build_filename(folder, MANIFEST_NAME, NULL);

    return strcmp(folder + strlen(directory) + 1, name) == 0 &&
           g_file_test(manifest, G_FILE_TEST_EXISTS);
}

bool rubato_snapshot_list(const char *directory, uint64_t **numbers, size_t *n, GError **error)
{
    g_autoptr(GError) fault = NULL;
    g_autoptr(GArray) found = NULL;
    GDir *dir;

    g_return_val_if_fail(directory != NULL && numbers != NULL && n != NULL, false);
    dir = g_dir_open(directory, 0, &fault);
    if (dir == NULL && !g_error_matches(fault, G_FILE_ERROR, G_FILE_ERROR_NOENT)) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO, fault->message);
        return false;
    }
    found = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
        uint64_t number;

        if (is_snapshot(directory, name, &number))
            g_array_append_val(found, number);
    }
    if (dir != NULL)
        g_dir_close(dir);
    if (found->len > 1)
        qsort(found->data, found->len, sizeof(uint64_t), compare_numbers);
    *n = found->len;
    *numbers = (uint64_t *)(void *)g_array_free(g_steal_pointer(&found), FALSE);
    return true;
}

/* ---- reading ---- */

static bool read_text(int fd, GString *text)
{
    char bytes[1 << 14];

    for (;;) {
        const ssize_t n = read(fd, bytes, sizeof bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return true;
        if (n < 0)
            return false;
        if (text->len + (size_t)n > MOST_MANIFEST) {
            errno = EFBIG;
            return false;
        }
        g_string_append_len(text, bytes, n);
    }
}

static Manifest *read_manifest(const char *path, GError **error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    g_autoptr(GString) text = g_string_new(NULL);
    Manifest *manifest = NULL;

    if (fd < 0 && errno == ENOENT)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "%s: there is no such snapshot",
                    path);
    else if (fd < 0 || !read_text(fd, text))
        fail(path, "read", error);
    else
        manifest = manifest_parse(text->str, text->len, path, error);
    if (fd >= 0)
        close(fd);
    return manifest;
}

Manifest *snapshot_folder_read(const char *directory, uint64_t number, GError **error)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);

    return read_manifest(path, error);
}
