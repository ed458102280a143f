/* Flags that have no effect in the combination in which they are given.
 *
 * Threads: main's. */
#ifndef RUBATO_APPS_KIT_APP_EFFECTS_H
#define RUBATO_APPS_KIT_APP_EFFECTS_H

#include <glib.h>
#include <stdbool.h>

typedef struct App App;

/* Refuses each flag that only training has a use for, if nothing is trained. arguments: the command
 * line, ended by NULL. */
bool app_effects_check(const App *app, char *const *arguments, GError **error);

#endif
