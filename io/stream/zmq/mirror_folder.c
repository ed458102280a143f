/* The directory in which a reader keeps versions. */
#include "io/stream/zmq/mirror_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/store/folder_ops.h"
#include "io/store/snapshot_folder.h"

#define PREFIX "rubato-stream-reader-"
#define LOCK_NAME ".reader"

/* Removes a folder of files and folders of files, as far as it can. depth: of the folders below. */
static void remove_below(const char *path, int depth)
{
    GDir *const dir = g_dir_open(path, 0, NULL);

    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *below = g_build_filename(path, name, NULL);

        if (unlink(below) != 0 && depth > 0)
            remove_below(below, depth - 1);
    }
    if (dir != NULL)
        g_dir_close(dir);
    (void)rmdir(path);
}

static int take_lock(const char *path, int flags)
{
    g_autofree char *name = g_build_filename(path, LOCK_NAME, NULL);
    const int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

/* One that is being made has no lock yet, and stays. */
static void remove_left(const char *path)
{
    struct stat found;
    int fd;

    if (lstat(path, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid())
        return;
    fd = take_lock(path, 0);
    if (fd < 0)
        return;
    remove_below(path, 1);
    close(fd);
}

static void remove_all_left(void)
{
    GDir *const dir = g_dir_open(g_get_tmp_dir(), 0, NULL);

    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *path = g_build_filename(g_get_tmp_dir(), name, NULL);

        if (g_str_has_prefix(name, PREFIX))
            remove_left(path);
    }
    if (dir != NULL)
        g_dir_close(dir);
}

bool mirror_folder_make(MirrorFolder *folder, GError **error)
{
    remove_all_left();
    folder->lock = -1;
    folder->path = g_build_filename(g_get_tmp_dir(), PREFIX "XXXXXX", NULL);
    if (g_mkdtemp(folder->path) != NULL)
        folder->lock = take_lock(folder->path, O_CREAT | O_EXCL);
    if (folder->lock >= 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "%s, where versions of the stream are to be kept, cannot be made: %s", folder->path,
                g_strerror(errno));
    g_clear_pointer(&folder->path, g_free);
    return false;
}

void mirror_folder_remove(MirrorFolder *folder)
{
    if (folder->path == NULL)
        return;
    remove_below(folder->path, 1);
    close(folder->lock);
    g_clear_pointer(&folder->path, g_free);
}

void mirror_folder_drop(const MirrorFolder *folder, uint64_t number)
{
    (void)directory_write_ops.remove(folder->path, number, NULL); /* it is removed at the end */
}

bool mirror_folder_show(const MirrorFolder *folder, uint64_t seed, uint64_t number, GError **error)
{
    g_autofree char *from = snapshot_folder_writing(folder->path, seed);
    g_autofree char *to = snapshot_folder_whole(folder->path, number);

    if (rename(from, to) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be renamed to %s: %s", from, to,
                g_strerror(errno));
    return false;
}
