/* What `rubato run` and the commands of roles share: starting a program.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_ROLE_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_ROLE_H

#include <glib.h>

/* The program's path, or NULL with an error. (transfer full) */
char *launcher_find_program(const char *name, GError **error);

#endif
