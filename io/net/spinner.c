/* How long, and how often, it is worth looking before going to sleep. */
#include "io/net/spinner.h"

#include <glib.h>
#include <sched.h>

#include "io/net/monotonic.h"

/* A look takes no longer: about what a sleep and two wake-ups cost. */
#define LONGEST_NS 50000

/* After so many looks in vain the next time is left out, then the next two, four, …, up to so many:
 * what comes after a pause, in which only heartbeats were found, is soon looked for again. */
#define MOST_FAILED 3
#define MOST_SKIPPED 64u

void spinner_init(Spinner *spinner)
{
    *spinner = (Spinner){ .is_alone = g_get_num_processors() == 1 };
}

bool spinner_begin(Spinner *spinner, SpinnerEnd *end)
{
    if (spinner->is_alone || spinner->n_skipped < spinner->n_to_skip) {
        spinner->n_skipped++;
        return false;
    }
    spinner->n_skipped = 0;
    *end = monotonic_ns() + LONGEST_NS;
    return true;
}

bool spinner_go_on(Spinner *spinner, SpinnerEnd end)
{
    sched_yield();
    if (monotonic_ns() < end)
        return true;
    if (++spinner->n_failed >= MOST_FAILED)
        spinner->n_to_skip = MIN(MOST_SKIPPED, MAX(1, 2 * spinner->n_to_skip));
    return false;
}

void spinner_found(Spinner *spinner)
{
    spinner->n_failed = 0;
    spinner->n_to_skip = 0;
}
