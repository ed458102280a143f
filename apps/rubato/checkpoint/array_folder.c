/* Arrays that come to be all at once. */
#define _GNU_SOURCE /* renameat2 */
#include "apps/rubato/checkpoint/array_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/error.h>

static bool fail(const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be created: %s", path,
                g_strerror(errno));
    return false;
}

bool array_folder_begin(ArrayFolder *folder, const char *path, GError **error)
{
    g_autofree char *writing = g_build_filename(path, ".exporting-XXXXXX", NULL);
    const bool is_new = g_mkdir(path, 0777) == 0;

    if (!is_new && errno != EEXIST)
        return fail(path, error);
    if (g_mkdtemp(writing) == NULL) {
        fail(writing, error);
        if (is_new)
            g_rmdir(path);
        return false;
    }
    *folder = (ArrayFolder){ .path = path,
                             .is_new = is_new,
                             .writing = g_steal_pointer(&writing),
                             .names = g_ptr_array_new_with_free_func(g_free) };
    return true;
}

FILE *array_folder_add(ArrayFolder *folder, const char *name)
{
    g_autofree char *place = g_build_filename(folder->path, name, NULL);
    g_autofree char *path = g_build_filename(folder->writing, name, NULL);
    FILE *file;

    if (g_file_test(place, G_FILE_TEST_EXISTS)) {
        errno = EEXIST;
        return NULL;
    }
    file = fopen(path, "wbxe");
    if (file != NULL)
        g_ptr_array_add(folder->names, g_strdup(name));
    return file;
}

/* Some file systems, such as NFS, cannot refuse to replace; array_folder_add has looked. */
static bool give_place(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
           (errno == EINVAL && g_rename(from, to) == 0);
}

/* Returns how many files have their places; not all: errno says why. */
static guint give_places(const ArrayFolder *folder)
{
    for (guint i = 0; i < folder->names->len; i++) {
        const char *const name = g_ptr_array_index(folder->names, i);
        g_autofree char *from = g_build_filename(folder->writing, name, NULL);
        g_autofree char *to = g_build_filename(folder->path, name, NULL);

        if (!give_place(from, to))
            return i;
    }
    return folder->names->len;
}

/* n_placed: so many of the files have their places. */
static void remove_all(const ArrayFolder *folder, guint n_placed)
{
    for (guint i = 0; i < folder->names->len; i++) {
        g_autofree char *path = g_build_filename(i < n_placed ? folder->path : folder->writing,
                                                 g_ptr_array_index(folder->names, i), NULL);

        g_unlink(path);
    }
}

bool array_folder_end(ArrayFolder *folder, bool good, GError **error)
{
    const guint n = good ? give_places(folder) : 0;

    if (good && n < folder->names->len) {
        good = false;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: %s cannot be put there: %s",
                    folder->path, (const char *)g_ptr_array_index(folder->names, n),
                    g_strerror(errno));
    }
    if (!good)
        remove_all(folder, n);
    g_rmdir(folder->writing);
    if (!good && folder->is_new)
        g_rmdir(folder->path); /* fails if somebody has put something there */
    g_free(folder->writing);
    g_ptr_array_unref(folder->names);
    return good;
}
