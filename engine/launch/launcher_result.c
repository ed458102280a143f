/* Which ends of nodes are forgiven, and who says so.
 *
 * While the run goes on, the nodes say so: that they go on without a lost one, or that the run has
 * ended. What they say is what they know. A process of the scheduler that stood still, and goes on
 * when the others have ended because they did not hear of it, counts them as lost and says that the
 * run goes on, and has ended, without them. So what was forgiven stays so only if the program has
 * come to its end on a node, which is known by the exit code of that node. A process that has only
 * served, in the place of another one or until it was drained, exits in the same way, and says
 * itself that its end is not that of the program.
 *
 * A launcher that has started a part of the nodes does not know of the ends of the others. To it a
 * node that was drained is one that has done all of its part. */
#include "engine/launch/launcher_result.h"

#include <stdlib.h>

static bool is_good(const Child *child)
{
    return process_exit_code(&child->end) == 0;
}

/* The run goes on whether or not a process takes the place of a lost one. So the end of one that
 * was started again is no failure, and if the others need it, they fail themselves. But without a
 * scheduler no run goes on. */
bool launcher_result_has_failed(const LaunchPlan *plan, const Child *child)
{
    return child->state != CHILD_RUNNING && !child->is_lost && !is_good(child) &&
           (child->n_restarts == 0 || child->plan->node == plan->resumes);
}

/* Whether the program has come to its end there, as far as this launcher can know. */
static bool came_to_end(const LaunchPlan *plan, const Child *child)
{
    const bool was_drained = child->has_served && child->n_restarts == 0;

    return is_good(child) && (!child->has_served || (was_drained && !plan->is_whole));
}

static const Child *find_bad(const Child *children, uint32_t n, bool by_itself)
{
    for (uint32_t i = 0; i < n; i++)
        if (!is_good(&children[i]) && (!by_itself || children[i].end.si_code == CLD_EXITED))
            return &children[i];
    return NULL;
}

/* The one that says most of why there was no end. */
static const Child *find_cause(const Child *children, uint32_t n)
{
    const Child *const failed = find_bad(children, n, /* by_itself= */ true);

    return failed != NULL ? failed : find_bad(children, n, /* by_itself= */ false);
}

LauncherResult launcher_result(const LaunchPlan *plan, const Child *children, uint32_t n,
                               const Child *failed)
{
    bool any_end = false, any_forgiven = false, others_are_good = true;

    for (uint32_t i = 0; i < n; i++) {
        any_end = any_end || came_to_end(plan, &children[i]);
        any_forgiven = any_forgiven || children[i].is_lost || children[i].n_restarts > 0;
        others_are_good = others_are_good &&
                          (&children[i] == failed || children[i].is_lost || is_good(&children[i]));
    }
    /* the next process of the scheduler found that the run had ended, and nothing to go on with */
    if (failed != NULL && failed->n_restarts > 0 && others_are_good && any_end)
        return (LauncherResult){ .kind = LAUNCHER_RESULT_GOOD };
    if (failed != NULL)
        return (LauncherResult){ LAUNCHER_RESULT_FAILED, failed };
    if (any_forgiven && !any_end)
        return (LauncherResult){ LAUNCHER_RESULT_NO_END, find_cause(children, n) };
    return (LauncherResult){ .kind = LAUNCHER_RESULT_GOOD };
}

int launcher_result_code(const LauncherResult *result)
{
    return result->kind == LAUNCHER_RESULT_GOOD ? EXIT_SUCCESS
           : result->child != NULL              ? process_exit_code(&result->child->end)
                                                : EXIT_FAILURE;
}
