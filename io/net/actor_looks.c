/* Looks for a token beyond the first few: see actor_looks.h. */
#include "io/net/actor_looks.h"

#include <glib.h>
#include <sched.h>

#include "io/net/monotonic.h"

/* Between two times that the thread gives its processor away. */
#define LOOKS_BEFORE_YIELD 32u

/* However large the message is: its sender may be asked to end. */
#define LONGEST_NS 1000000u

bool actor_looks_longer(ActorLooks *looks, uint64_t most_ns)
{
    if (looks->n % LOOKS_BEFORE_YIELD != 0)
        return true;
    const int64_t now = monotonic_ns();

    if (looks->end_ns == 0)
        looks->end_ns = now + (int64_t)MIN(most_ns, LONGEST_NS);
    else if (now >= looks->end_ns)
        return false;
    sched_yield();
    return true;
}
