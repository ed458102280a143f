/* What the ends of the nodes say of the run that `rubato run` has started.
 *
 * Threads: the one thread of the supervisor. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_RESULT_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_RESULT_H

#include "engine/launch/launcher_child.h"

/* Whether the end of a child is a failure, as far as is known while the run goes on. */
bool launcher_result_has_failed(const LaunchPlan *plan, const Child *child);

typedef enum {
    LAUNCHER_RESULT_GOOD,
    LAUNCHER_RESULT_FAILED, /* a node has */
    LAUNCHER_RESULT_NO_END, /* no node has come to the end of the program */
} LauncherResultKind;

typedef struct {
    LauncherResultKind kind;
    const Child *child; /* whose end is that of the run; may be NULL if there was NO_END */
} LauncherResult;

/* Once all children have ended. failed: the first that has, or NULL. */
LauncherResult launcher_result(const LaunchPlan *plan, const Child *children, uint32_t n,
                               const Child *failed);
int launcher_result_code(const LauncherResult *result);

#endif
