/* Files that flags name. Runs on main's thread. */
#include "apps/kit/report/app_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *flag, *path;
    AppFileFunc write;
    void *data;
} Output;

static bool fail(const Output *output, int number, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s %s: %s", output->flag, output->path,
                g_strerror(number));
    return false;
}

/* A pipe, a device and the like. */
static bool is_special(const char *path)
{
    return g_file_test(path, G_FILE_TEST_EXISTS) &&
           !g_file_test(path, G_FILE_TEST_IS_REGULAR | G_FILE_TEST_IS_DIR);
}

/* The stream that a path means; NULL: it means a file of its own. A second descriptor of the same
 * file would write over what the stream has written. */
static FILE *standard_stream(const char *path)
{
    FILE *const streams[] = { stdout, stderr };
    struct stat file, stream;

    if (strcmp(path, "-") == 0)
        return stdout;
    if (stat(path, &file) != 0)
        return NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(streams); i++)
        if (fstat(fileno(streams[i]), &stream) == 0 && stream.st_dev == file.st_dev &&
            stream.st_ino == file.st_ino)
            return streams[i];
    return NULL;
}

/* Where a file is made before it gets its name. (transfer full) */
static char *name_beside(const char *path)
{
    return g_strconcat(path, ".XXXXXX", NULL);
}

/* Whether a file can be made there: for root, and for some file systems, access says yes where
 * there is no. */
static bool can_make_file(const char *path)
{
    g_autofree char *made = name_beside(path);
    const int fd = g_mkstemp_full(made, O_WRONLY | O_CLOEXEC, 0666);

    if (fd < 0)
        return false;
    close(fd);
    g_unlink(made);
    return true;
}

bool app_file_check(const char *flag, const char *path, GError **error)
{
    if (path == NULL || standard_stream(path) != NULL)
        return true;

    g_autofree char *place = is_special(path) ? g_strdup(path) : g_path_get_dirname(path);
    if (g_file_test(path, G_FILE_TEST_IS_DIR))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s %s: is a folder; name a file", flag,
                    path);
    else if (is_special(path) ? g_access(place, W_OK) != 0 : !can_make_file(path))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s %s: %s: %s", flag, path, place,
                    g_strerror(errno));
    else
        return true;
    return false;
}

static bool write_to(const Output *output, FILE *file, GError **error)
{
    if (!output->write(file, output->data, error))
        return false;
    if (fflush(file) != 0)
        return fail(output, errno, error);
    return !ferror(file) || fail(output, EIO, error);
}

static bool write_through(const Output *output, GError **error)
{
    FILE *file = fopen(output->path, "we");

    if (file == NULL)
        return fail(output, errno, error);
    const bool good = write_to(output, file, error);
    fclose(file); /* it was flushed */
    return good;
}

static bool write_beside(const Output *output, GError **error)
{
    g_autofree char *made = name_beside(output->path);
    const int fd = g_mkstemp_full(made, O_WRONLY | O_CLOEXEC, 0666);

    if (fd < 0)
        return fail(output, errno, error);
    FILE *file = fdopen(fd, "w");
    assert(file != NULL); /* the descriptor is good and the mode is right */
    bool good = write_to(output, file, error);
    if (good && fsync(fd) != 0)
        good = fail(output, errno, error);
    fclose(file); /* it was flushed */
    if (good && g_rename(made, output->path) != 0)
        good = fail(output, errno, error);
    if (!good)
        g_unlink(made);
    return good;
}

bool app_file_write(const char *flag, const char *path, AppFileFunc write, void *data,
                    GError **error)
{
    const Output output = { .flag = flag, .path = path, .write = write, .data = data };
    FILE *stream = standard_stream(path);

    if (stream != NULL)
        return write_to(&output, stream, error);
    return is_special(path) ? write_through(&output, error) : write_beside(&output, error);
}

static bool write_text(FILE *file, void *data, GError **error)
{
    (void)error;
    fputs(data, file);
    return true;
}

bool app_file_write_text(const char *flag, const char *path, const char *text, GError **error)
{
    return app_file_write(flag, path, write_text, (void *)(uintptr_t)text, error);
}
