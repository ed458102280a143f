/* Runs gnuplot: it reads the script from a temporary file and writes the picture to a pipe. */
#include "apps/kit/report/app_gnuplot.h"
#include "apps/kit/report/app_file.h"

#include <glib/gstdio.h>
#include <rubato/error.h>
#include <unistd.h>

bool app_gnuplot_check(GError **error)
{
    g_autofree char *program = g_find_program_in_path("gnuplot");

    if (program != NULL)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        "--plot needs gnuplot, which is not there: install Debian's package "
                        "gnuplot-nox, or leave --plot out");
    return false;
}

static bool fail(GError **error, const char *path, const char *why)
{
    g_autofree char *reason = g_strstrip(g_strdup(why));

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--plot %s: %s", path, reason);
    return false;
}

static bool run(const char *script_path, const char *path, GError **error)
{
    const char *const arguments[] = { "gnuplot", script_path, NULL };
    g_autoptr(GError) cause = NULL;
    g_autofree char *picture = NULL;
    g_autofree char *complaint = NULL;
    int status;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)arguments, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL,
                      &picture, &complaint, &status, &cause))
        return fail(error, path, cause->message);
    if (!g_spawn_check_wait_status(status, NULL) || *picture == '\0')
        return fail(error, path, *complaint != '\0' ? complaint : "gnuplot has drawn nothing");
    return app_file_write_text("--plot", path, picture, error);
}

bool app_gnuplot_draw(const char *script, const char *path, GError **error)
{
    g_autofree char *script_path = NULL;
    g_autoptr(GError) cause = NULL;

    if (!app_gnuplot_check(error))
        return false;
    const int fd = g_file_open_tmp("rubato-plot-XXXXXX", &script_path, &cause);
    if (fd < 0)
        return fail(error, path, cause->message);
    close(fd);
    const bool good = g_file_set_contents(script_path, script, -1, &cause)
                          ? run(script_path, path, error)
                          : fail(error, path, cause->message);
    g_unlink(script_path);
    return good;
}
