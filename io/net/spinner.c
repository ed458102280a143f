/* Decides how long, and how often, to poll before going to sleep.
 *
 * A kernel may wake the thread that answers on the processor of the one that asks, and leave both
 * there for many milliseconds while another processor is idle; a sleep does not part them. Then
 * each finds the other's messages only when it gives the processor away, at six times the cost. A
 * thread that sees this several times in a row asks the kernel for all of its processors but the
 * present one, and then for all of them again. The first call moves it, even though the second
 * follows at once. */
#include "io/net/spinner.h"

#include <glib.h>
#include <sched.h>

#include "io/net/monotonic.h"
#include "io/net/processors.h"

/* An attempt takes no longer than this: about the cost of a sleep and two wake-ups. Where threads
 * take turns on a processor, it may take as long for each of them. */
#define LONGEST_NS 50000
#define MOST_SHARING 64u

/* The same where what a thread waits for takes long: a sleep and two wake-ups take 15 to 130 us, as
 * the machine has it. Not for all: two workers that the kernel has put on one processor would stay
 * there longer, as only a sleep parts them. */
#define LONGEST_LONG_NS 200000

/* Threads that take turns give the processor away after each look, so a longer attempt costs others
 * little. A sleep costs more than it seems: a sender must wake this thread, usually on its own
 * processor, where it waits until the sender gives way. And each thread that sleeps makes the
 * attempts of the others longer, until they sleep as well. */
#define LONGEST_PATIENT_NS 500000
#define MOST_PATIENT_NS 2000000

#define LOOKS 64u
#define LOOKS_SHARING 1u

/* After MOST_FAILED attempts without success, the next attempt is left out, then the next two,
 * four, …, up to MOST_SKIPPED. That number is low, so that polling soon begins again after a pause
 * with heartbeats alone. */
#define MOST_FAILED 3
#define MOST_SKIPPED 64u

/* If giving way takes longer than CROWDED_NS, another thread has used the processor. MOST_CROWDED
 * such finds in a row make the thread move. It moves again only after a pause, and the pause
 * doubles as long as moving has not helped. */
#define CROWDED_NS 1500
#define MOST_CROWDED 8u
#define CROWDED_ORIGIN 4u /* a message from this processor counts for this many finds */
#define SHORTEST_STAY_NS 250000
#define LONGEST_STAY_NS 16000000

void spinner_init(Spinner *spinner)
{
    *spinner = (Spinner){ .is_alone = processors_count() == 1, .n_looks = LOOKS, .n_sharing = 1 };
}

void spinner_share(Spinner *spinner, uint32_t n_threads)
{
    const uint32_t n_processors = processors_count();

    if (n_threads <= n_processors)
        return;
    spinner->n_looks = LOOKS_SHARING;
    spinner->n_sharing = MIN(MOST_SHARING, (n_threads + n_processors - 1) / n_processors);
}

/* Nothing is lost if it fails, or if the machine has more processors than a cpu_set_t. (If another
 * process changes this thread's processors between the two calls, the change is undone. The time
 * between them is some microseconds, a few times a second at most.) */
static void move_elsewhere(void)
{
    const int processor = sched_getcpu();
    cpu_set_t allowed, others;

    if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

static void move_if_crowded(Spinner *spinner)
{
    if (!spinner->moves || spinner->n_crowded < MOST_CROWDED)
        return;
    const int64_t now = monotonic_ns();

    if (now - spinner->moved_at < spinner->stay_ns)
        return;
    spinner->n_crowded = 0;
    spinner->moved_at = now;
    spinner->stay_ns = MIN(LONGEST_STAY_NS, MAX(SHORTEST_STAY_NS, 2 * spinner->stay_ns));
    move_elsewhere();
}

bool spinner_begin(Spinner *spinner, SpinnerEnd *end)
{
    if (spinner->is_alone || spinner->n_skipped < spinner->n_to_skip) {
        spinner->n_skipped++;
        return false;
    }
    move_if_crowded(spinner);
    spinner->n_skipped = 0;
    spinner->gave_way = false;
    *end = 0;
    return true;
}

static int64_t longest_ns(const Spinner *spinner)
{
    const int64_t n = spinner->n_sharing;

    if (n == 1)
        return spinner->looks_long ? LONGEST_LONG_NS : LONGEST_NS;
    return spinner->is_patient ? MAX(n * LONGEST_NS, MIN(n * LONGEST_PATIENT_NS, MOST_PATIENT_NS))
                               : n * LONGEST_NS;
}

bool spinner_go_on(Spinner *spinner, SpinnerEnd *end)
{
    const int64_t before = monotonic_ns();

    if (*end == 0)
        *end = before + longest_ns(spinner);
    sched_yield();
    const int64_t now = monotonic_ns();
    spinner->gave_way = spinner->gave_way || now - before > CROWDED_NS;
    if (now < *end)
        return true;
    if (++spinner->n_failed >= MOST_FAILED)
        spinner->n_to_skip = MIN(MOST_SKIPPED, MAX(1, 2 * spinner->n_to_skip));
    return false;
}

static void note_crowded(Spinner *spinner, unsigned n)
{
    if (n > 0) {
        spinner->n_crowded += n;
    } else {
        spinner->n_crowded = 0;
        spinner->stay_ns /= 2;
    }
}

void spinner_found(Spinner *spinner)
{
    spinner->n_failed = 0;
    spinner->n_to_skip = 0;
    note_crowded(spinner, spinner->gave_way ? 1 : 0);
}

void spinner_note_origin(Spinner *spinner, int processor)
{
    if (spinner->is_alone || !spinner->moves || processor < 0)
        return;
    note_crowded(spinner, processor == sched_getcpu() ? CROWDED_ORIGIN : 0);
    move_if_crowded(spinner);
}
