/* `rubato scheduler`, `server` and `worker`: the process becomes the program.
 *
 * Thread: the one thread of the process. */
#include "engine/launch/launcher_role.h"

#include <errno.h>
#include <rubato/engine.h>
#include <rubato/launcher.h>
#include <string.h>
#include <unistd.h>

char *launcher_find_program(const char *name, GError **error)
{
    char *path = g_find_program_in_path(name);
    if (path != NULL)
        return path;

    if (g_file_test(name, G_FILE_TEST_IS_REGULAR)) {
        const bool runs = g_file_test(name, G_FILE_TEST_IS_EXECUTABLE);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    runs ? "no program '%s' in PATH; write ./%s for the one in this folder"
                         : "the file '%s' is no program; make it executable (chmod +x %s)",
                    name, name);
    } else {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    strchr(name, '/') != NULL ? "there is no program '%s'; has it been built?"
                                              : "no program '%s' in PATH",
                    name);
    }
    return NULL;
}

static void set_text(const char *name, const char *text)
{
    if (text != NULL)
        g_setenv(name, text, TRUE);
}

static void set_number(const char *name, uint32_t number)
{
    g_autofree char *text = g_strdup_printf("%u", number);

    if (number != 0)
        g_setenv(name, text, TRUE);
}

/* The program would find faults of the variables as well, but who started it would learn of them
 * only from its log. */
static bool check_environment(GError **error)
{
    RubatoAnnouncement announcement;

    return rubato_announcement_from_environment(&announcement, error);
}

bool rubato_launch_role(const RubatoLaunchRole *launch, GError **error)
{
    g_return_val_if_fail(launch != NULL && launch->role != NULL, false);
    if (launch->argv == NULL || launch->argv[0] == NULL || *launch->argv[0] == '\0') {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "no program to run");
        return false;
    }
    set_text("RUBATO_ROLE", launch->role);
    set_text("RUBATO_SCHEDULER", launch->scheduler);
    set_text("RUBATO_INTERFACE", launch->interface);
    set_text("RUBATO_SETTINGS", launch->settings);
    set_number("RUBATO_SERVERS", launch->servers);
    set_number("RUBATO_WORKERS", launch->workers);
    set_number("RUBATO_THREADS", launch->threads);
    set_number("RUBATO_NODE", launch->node);
    set_number("RUBATO_SPARES", launch->spares);
    if (!check_environment(error))
        return false;

    g_autofree char *path = launcher_find_program(launch->argv[0], error);
    if (path == NULL)
        return false;
    execv(path, (char **)(uintptr_t)launch->argv);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot start %s: %s", path,
                g_strerror(errno));
    return false;
}
