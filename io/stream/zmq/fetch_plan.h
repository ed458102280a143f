/* Which versions a reader asks for, by what it has and what the publisher has.
 *
 * Threads: any; a function of its arguments alone. */
#ifndef RUBATO_IO_STREAM_ZMQ_FETCH_PLAN_H
#define RUBATO_IO_STREAM_ZMQ_FETCH_PLAN_H

#include "io/stream/zmq/stream_message.h"

typedef enum {
    FETCH_NOTHING, /* it has the newest, or the publisher has none that is whole */
    FETCH_NEXT,    /* those behind its newest one */
    FETCH_ANEW,    /* it has none, or those next are gone: the newest, and what this builds on */
    FETCH_OTHER,   /* the same, of another stream: what it has is of no use any more */
} FetchKind;

/* own: the newest version that it has, 0 for none. theirs: ascending. at: room for n; set to the
 * places in `theirs` of those to fetch, in this order, *n_at of them. */
FetchKind fetch_plan(uint64_t own, uint64_t own_seed, const ListedVersion *theirs, size_t n,
                     size_t *at, size_t *n_at);

/* Of those to fetch the ones that a reader needs who is too slow for all of them: the newest with
 * all rows, and those behind it. Returns how many there are now. */
size_t fetch_plan_leave_out(const ListedVersion *theirs, size_t *at, size_t n_at);

#endif
