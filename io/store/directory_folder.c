/* Snapshots in a directory.
 *
 * The order of what reaches the disk: each part's bytes (directory_file.c); the names of the parts;
 * the manifest's bytes; its name; the folder's name. A crash between two of them leaves a folder
 * that is not yet, or wholly, a snapshot.
 *
 * Versions of a stream that hold changes do not wait for the disk, which may take as long as others
 * write to it. So a machine that crashes may leave folders with names and without all their bytes.
 * Checksums tell, and the versions before are there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/store/folder_ops.h"
#include "io/store/snapshot_folder.h"
#include "io/store/spill_file.h"

#define WHOLE "snapshot-"
#define MOST_NAME (sizeof WHOLE + 20)
#define WRITING ".writing-"
#define REMOVING ".removing-"

static bool fail(const char *path, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be %s: %s", path, what,
                g_strerror(errno));
    return false;
}

static char *name_writing(const char *directory, uint64_t seed)
{
    return g_strdup_printf("%s/" WRITING "%016" G_GINT64_MODIFIER "x", directory, seed);
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

static bool write_text(int fd, const char *path, const char *text, bool syncs, GError **error)
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
    return !syncs || fsync(fd) == 0 || fail(path, "synchronised with the disk", error);
}

static bool write_file(const char *path, const char *text, bool syncs, GError **error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok;

    if (fd < 0)
        return fail(path, "created", error);
    ok = write_text(fd, path, text, syncs, error);
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

static bool make_directory(const char *directory, GError **error)
{
    return make_folder(directory, error);
}

static bool begin(const char *directory, uint64_t seed, GError **error)
{
    g_autofree char *folder = name_writing(directory, seed);

    return make_folder(directory, error) && make_folder(folder, error);
}

/* The manifest, and before it the names of the parts. */
static bool write_manifest(const char *folder, const Manifest *manifest, GError **error)
{
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *fresh = g_strconcat(path, ".new", NULL);
    g_autofree char *text = manifest_text(manifest);
    const bool syncs = !manifest->is_for_kernel;

    return (!syncs || sync_folder(folder, error)) && write_file(fresh, text, syncs, error) &&
           rename_path(fresh, path, error) && (!syncs || sync_folder(folder, error));
}

static bool commit(const char *directory, const Manifest *manifest, uint64_t number, GError **error)
{
    g_autofree char *folder = name_writing(directory, manifest->seed);
    g_autofree char *whole = snapshot_folder_whole(directory, number);

    if (!write_manifest(folder, manifest, error) || !rename_path(folder, whole, error))
        return false;
    if (manifest->is_for_kernel || sync_folder(directory, error))
        return true;
    /* Nobody may rely on a name that may be gone after a crash. */
    (void)rename(whole, folder);
    return false;
}

static void abandon(const char *directory, uint64_t seed)
{
    g_autofree char *folder = name_writing(directory, seed);

    remove_folder(folder);
}

static void tidy(const char *directory, uint64_t seed)
{
    g_autofree char *own = name_writing(directory, seed);
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

/* ---- finding ---- */

/* The number in the name of a whole snapshot's folder. */
static bool read_number(const char *name, uint64_t *number)
{
    guint64 found;

    if (!g_str_has_prefix(name, WHOLE) ||
        !g_ascii_string_to_unsigned(name + strlen(WHOLE), 10, 1, MOST_NUMBER, &found, NULL))
        return false;
    *number = found;
    return true;
}

/* Folders of the same number but another name, such as snapshot-12, are not of this library. */
static bool is_name(int directory, const char *name, uint64_t *number)
{
    char own[MOST_NAME];

    (void)directory;
    if (!read_number(name, number))
        return false;
    (void)g_snprintf(own, sizeof own, WHOLE "%06" G_GUINT64_FORMAT, *number);
    return strcmp(own, name) == 0;
}

/* A directory with a stream is listed for each version, so this makes one short call and no text on
 * the heap. */
static bool is_snapshot(int directory, const char *name, uint64_t *number)
{
    char manifest[MOST_NAME + sizeof MANIFEST_NAME];

    if (!is_name(directory, name, number))
        return false;
    (void)g_snprintf(manifest, sizeof manifest, "%s/" MANIFEST_NAME, name);
    /* One that this process may not look into is there: who reads it hears why it cannot. */
    return faccessat(directory, manifest, F_OK, 0) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* The numbers of the entries that a function takes. */
static bool list_those(const char *directory,
                       bool (*takes)(int directory, const char *name, uint64_t *number),
                       GArray *numbers, GError **error)
{
    DIR *const dir = opendir(directory);

    if (dir == NULL)
        return errno == ENOENT || fail(directory, "read", error);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        uint64_t number;

        if (takes(dirfd(dir), entry->d_name, &number))
            g_array_append_val(numbers, number);
    }
    closedir(dir);
    return true;
}

static bool list(const char *directory, GArray *numbers, GError **error)
{
    return list_those(directory, is_snapshot, numbers, error);
}

/* Also what is left of a snapshot that somebody removed or copied in part has a number: a folder
 * that is not empty cannot be replaced. */
static bool list_used(const char *directory, GArray *numbers, GError **error)
{
    return list_those(directory, is_name, numbers, error);
}

/* Whether it has the name of a snapshot and no manifest. A run may remove a whole one meanwhile, or
 * give another one the same name: it removes a manifest after the folder has lost its name, and
 * gives a name to a folder with a manifest. So if that which was looked at has the name afterwards,
 * it had it without a manifest. */
static bool is_torn(int directory, const char *name, uint64_t *number)
{
    struct stat looked_at, named;
    bool is;

    if (!is_name(directory, name, number))
        return false;
    const int fd = openat(directory, name, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return false;
    is = faccessat(fd, MANIFEST_NAME, F_OK, 0) != 0 && (errno == ENOENT || errno == ENOTDIR) &&
         fstat(fd, &looked_at) == 0 && fstatat(directory, name, &named, 0) == 0 &&
         looked_at.st_dev == named.st_dev && looked_at.st_ino == named.st_ino;
    close(fd);
    return is;
}

static bool list_torn(const char *directory, GArray *numbers, GError **error)
{
    return list_those(directory, is_torn, numbers, error);
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

static Manifest *read_whole(const char *directory, uint64_t number, GError **error)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);

    return read_manifest(path, error);
}

static char *name_rows(const char *directory, uint64_t number, uint64_t seed)
{
    (void)seed; /* it is in the manifest beside them */
    return snapshot_folder_whole(directory, number);
}

static bool has_file(const char *path)
{
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

const FolderReadOps directory_read_ops = {
    .list = list,
    .list_torn = list_torn,
    .read = read_whole,
    .rows = name_rows,
    .has_file = has_file,
};

const FolderWriteOps directory_write_ops = {
    .writing = name_writing,
    .make = make_directory,
    .begin = begin,
    .commit = commit,
    .abandon = abandon,
    .tidy = tidy,
    .list_used = list_used,
    .remove = remove_whole,
};
