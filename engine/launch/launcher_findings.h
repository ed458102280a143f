/* What `rubato check` without a file finds: a list of RubatoFinding.
 *
 * Threads: a list belongs to one. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_FINDINGS_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_FINDINGS_H

#include <rubato/launcher.h>

/* An empty list of RubatoFinding, which frees them. (transfer full) */
GPtrArray *findings_new(void);

/* Adds one that is fine. `name` is not copied; `text` becomes the list's. */
void findings_add(GPtrArray *findings, const char *name, char *text);

/* Adds one that is not; `advice` becomes the list's, too. */
void findings_add_fault(GPtrArray *findings, const char *name, char *text, RubatoFindingState state,
                        char *advice);

#endif
