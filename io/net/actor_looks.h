/* How long a thread looks for a token that another thread has, before it leaves its message.
 *
 * A message that is left costs more than its handling: an Add is copied, its rows go from the
 * sender's cache to the owner's, and the owner's own requests wait meanwhile, so that their senders
 * leave theirs, too. Therefore a thread looks about as long as its message would take to handle. So
 * it never loses more than it would lose by leaving it at once, twice over.
 *
 * Each look ends, and so do all of them: after ACTOR_LOOKS, or at the first look behind the time
 * given. The owner is not waited for in any other way. From ACTOR_LOOKS on the thread gives its
 * processor away now and then, because the owner may need it.
 *
 * Threads: any, each with its own. */
#ifndef RUBATO_IO_NET_ACTOR_LOOKS_H
#define RUBATO_IO_NET_ACTOR_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "io/net/futex.h"

/* How often any thread looks: one to some microseconds in all. */
#define ACTOR_LOOKS 128u

/* As long as those take; for less, time is not read. */
#define ACTOR_LOOKS_NS 3000u

typedef struct {
    unsigned n;
    int64_t end_ns; /* 0: not known yet */
} ActorLooks;

/* After ACTOR_LOOKS. */
bool actor_looks_longer(ActorLooks *looks, uint64_t most_ns);

/* After a look in vain: whether there is another one. most_ns: as long as the message takes. */
static inline bool actor_looks_on(ActorLooks *looks, uint64_t most_ns)
{
    spin_pause();
    return ++looks->n < ACTOR_LOOKS ||
           (most_ns > ACTOR_LOOKS_NS && actor_looks_longer(looks, most_ns));
}

#endif
