/* Looking for a while before going to sleep, as long as that has been worth it lately.
 *
 * Two threads on two processors exchange a message in a fraction of the time that it takes to wake
 * one. So whoever waits first looks again and again, and gives the processor away in between to
 * whoever has use for it; after a few times in vain this is tried more and more seldom.
 *
 *     SpinnerEnd end;
 *
 *     if (spinner_begin(spinner, &end))
 *         do
 *             for (unsigned i = 0; i < SPINNER_LOOKS; i++)
 *                 … look; spinner_found(spinner) and leave, or spin_pause() …
 *         while (spinner_go_on(spinner, end));
 *
 * Threads: one at a time for each spinner. */
#ifndef RUBATO_IO_NET_SPINNER_H
#define RUBATO_IO_NET_SPINNER_H

#include <stdbool.h>
#include <stdint.h>

#include "io/net/futex.h"

/* Looks between two times that the processor is given away. */
#define SPINNER_LOOKS 32

typedef struct {
    bool is_alone;      /* there is one processor: whoever is waited for could not get on */
    unsigned n_failed;  /* in a row */
    unsigned n_to_skip; /* times, before the next attempt */
    unsigned n_skipped; /* since the last one */

    /* Set it after spinner_init, for threads of the library's own: they leave a processor that they
     * share with who they wait for. Where a worker runs is its program's business. */
    bool moves;
    bool gave_way;      /* in this attempt somebody else used the processor meanwhile */
    unsigned n_crowded; /* attempts in a row that found something only after that */
    int64_t moved_at;
    int64_t stay_ns; /* before the next move */
} Spinner;

typedef int64_t SpinnerEnd;

void spinner_init(Spinner *spinner);

/* Whether to look at all; then *end is for spinner_go_on. */
bool spinner_begin(Spinner *spinner, SpinnerEnd *end);

/* Gives the processor away. False: it was long enough, and in vain. */
bool spinner_go_on(Spinner *spinner, SpinnerEnd end);

/* It was worth it. */
void spinner_found(Spinner *spinner);

/* Something was sent to this thread from that processor; -1: nobody knows which. */
void spinner_note_origin(Spinner *spinner, int processor);

#endif
