/* How much of what other nodes ask the receiving thread handles itself.
 *
 * To pass a request on to its server's thread costs more than most requests do. But heartbeats and
 * acknowledgements wait for the receiving thread. So what it handles itself is bounded in time: one
 * request, and all of a batch of packets.
 *
 * How long a request takes is estimated from those before it, by its values. A value takes
 * nanoseconds as a rule, but a tenth of a millisecond where memory is written for the first time,
 * because the kernel clears 2 MiB for it. Requests that would take too long go to the servers'
 * threads, where they are measured, too; so it is known when they are fast again. Times are those
 * of a coarse clock, which tells only what took longer than a tick. Such a measurement counts at
 * once, also if the thread had lost its processor; without one, more is allowed after each request.
 *
 * Threads: the receiving thread, one at a time; inline_work_learn any. */
#ifndef RUBATO_IO_NET_POST_OFFICE_INLINE_WORK_H
#define RUBATO_IO_NET_POST_OFFICE_INLINE_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A request with as many values is measured alone, by its server; smaller ones are together. */
#define INLINE_WORK_MEASURED 64

typedef struct {
    _Atomic uint32_t most; /* values that a request may have, by those of late; any thread */

    /* the receiving thread only, one at a time */
    int64_t end_ns;      /* of the batch's time; 0: nothing of it was handled yet */
    int64_t began_ns;    /* when the small requests began that are measured together */
    size_t n_unmeasured; /* their values, and one for each request */
    bool is_over;        /* the batch's time */
} InlineWork;

void inline_work_init(InlineWork *work);

void inline_work_begin_batch(InlineWork *work);

/* Whether there is time for one more request in this batch. */
bool inline_work_takes_more(const InlineWork *work);

/* How many values a request may have in this batch, with those that it releases. */
size_t inline_work_most(const InlineWork *work);

/* Before and after a request is handled, with n_values of its own and so many that it released. */
void inline_work_begin(InlineWork *work);
void inline_work_end(InlineWork *work, size_t n_values, size_t n_released);

/* n_values took so long, by the coarse clock. */
void inline_work_learn(InlineWork *work, size_t n_values, int64_t ns);

#endif
