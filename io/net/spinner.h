/* Polls for a while before a thread goes to sleep, as long as polling has helped lately.
 *
 * Two threads on two processors exchange a message in a fraction of the time that it takes to wake
 * one. So a waiting thread first polls, and gives the processor away in between to any thread that
 * can use it. After a few attempts in vain it tries this less and less often.
 *
 *     SpinnerEnd end;
 *
 *     if (spinner_begin(spinner, &end))
 *         do
 *             for (unsigned i = 0; i < spinner->n_looks; i++)
 *                 … look; spinner_found(spinner) and leave, or spin_pause() …
 *         while (spinner_go_on(spinner, &end));
 *
 * Threads: one at a time for each spinner. */
#ifndef RUBATO_IO_NET_SPINNER_H
#define RUBATO_IO_NET_SPINNER_H

#include <stdbool.h>
#include <stdint.h>

#include "io/net/futex.h"

typedef struct {
    bool is_alone;      /* there is one processor: polling would keep it from the thread that is
                         * waited for */
    unsigned n_looks;   /* polls before the processor is given away again */
    unsigned n_sharing; /* threads that take turns on a processor */
    unsigned n_failed;  /* in a row */
    unsigned n_to_skip; /* attempts to leave out before the next one */
    unsigned n_skipped; /* attempts left out since the last one */

    /* Set it after spinner_init, for threads that usually find something: where they take turns on
     * a processor, an attempt lasts longer. */
    bool is_patient;

    /* Set it after spinner_init, for threads that wait for what takes 100 us and more, such as the
     * values of a tensor: where they share no processor, an attempt lasts longer. */
    bool looks_long;

    /* Set it after spinner_init, for threads of the library: they leave a processor that they share
     * with the thread for which they wait. The library does not move a worker, because its program
     * may have placed it. */
    bool moves;
    bool gave_way;      /* in this attempt another thread used the processor */
    unsigned n_crowded; /* attempts in a row that found something only after that */
    int64_t moved_at;
    int64_t stay_ns; /* before the next move */
} Spinner;

/* When the attempt ends; 0: its time has not begun. */
typedef int64_t SpinnerEnd;

void spinner_init(Spinner *spinner);

/* So many threads of the process wait for one another like this one. If they are more than the
 * processors, the thread that is waited for may itself wait for a processor: so this one gives its
 * own away at once, and looks longer, until all have had their turn. */
void spinner_share(Spinner *spinner, uint32_t n_threads);

/* n_looks of a worker that receives, and so waits for another process: more where it has a
 * processor of its own. What comes while it gives that away is found only afterwards, and a system
 * call takes up to 2 us on a virtual machine. */
static inline unsigned spinner_looks_receiving(const Spinner *spinner)
{
    return spinner->n_sharing == 1 ? 4 * spinner->n_looks : spinner->n_looks;
}

/* Whether to poll at all; then *end is for spinner_go_on. */
bool spinner_begin(Spinner *spinner, SpinnerEnd *end);

/* Gives the processor away. False: the attempt has lasted long enough without success. Its time
 * begins with the first call: to read the time would delay a waiter that finds something sooner. */
bool spinner_go_on(Spinner *spinner, SpinnerEnd *end);

/* The attempt has succeeded. */
void spinner_found(Spinner *spinner);

/* Something was sent to this thread from that processor; -1: the processor is unknown. */
void spinner_note_origin(Spinner *spinner, int processor);

#endif
