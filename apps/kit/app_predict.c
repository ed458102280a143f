/* --predict: the predictions go to a new file beside the requested one, which gets its name when it
 * is complete. To standard output, a terminal or a pipe they are written directly. Runs on main's
 * thread, on the reporting node. */
#include "apps/kit/app.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

static bool fail(const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--output %s: %s", path, g_strerror(errno));
    return false;
}

static bool write_to(const App *app, const AppModel *model, FILE *file, GError **error)
{
    if (!model->predict(app->predict, file, model->user_data, error))
        return false;
    return (fflush(file) == 0 && !ferror(file)) || fail(app->output, error);
}

/* Something that exists and is not a file, such as a pipe, is not replaced. */
static bool write_through(const App *app, const AppModel *model, GError **error)
{
    FILE *file = fopen(app->output, "we");

    if (file == NULL)
        return fail(app->output, error);
    const bool good = write_to(app, model, file, error);
    fclose(file); /* it was flushed */
    return good;
}

static bool write_beside(const App *app, const AppModel *model, GError **error)
{
    g_autofree char *made = g_strconcat(app->output, ".XXXXXX", NULL);
    const int fd = g_mkstemp_full(made, O_WRONLY | O_CLOEXEC, 0666);

    if (fd < 0)
        return fail(made, error);
    FILE *file = fdopen(fd, "w");
    assert(file != NULL); /* the descriptor is good and the mode is right */
    bool good = write_to(app, model, file, error);
    if (good && fsync(fd) != 0)
        good = fail(made, error);
    fclose(file); /* it was flushed */
    if (good && g_rename(made, app->output) != 0)
        good = fail(app->output, error);
    if (!good)
        g_unlink(made);
    return good;
}

bool app_predict(const App *app, const AppModel *model, GError **error)
{
    if (strcmp(app->output, "-") == 0)
        return write_to(app, model, stdout, error);
    if (g_file_test(app->output, G_FILE_TEST_EXISTS) &&
        !g_file_test(app->output, G_FILE_TEST_IS_REGULAR))
        return write_through(app, model, error);
    return write_beside(app, model, error);
}
