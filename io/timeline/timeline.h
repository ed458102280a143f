/* The timeline of a node: what its workers and their collectives do, and when, as a Chrome trace.
 *
 * Who records copies a few numbers and a name into a buffer of fixed size; a thread of the timeline
 * writes them. If that cannot keep up, events are dropped and counted, and the trace says so. What
 * began before the recording is left out. The file is whole JSON after each write, so the trace of
 * a process that was killed can be read; if it was killed within a write, up to the last line. If
 * the file cannot be written any more, the log says so once, and recording ends.
 *
 * Times are those of monotonic_ns. The file has them in the time of the scheduler's node.
 *
 * Threads: any. */
#ifndef RUBATO_IO_TIMELINE_TIMELINE_H
#define RUBATO_IO_TIMELINE_TIMELINE_H

#include <rubato/error.h>
#include <stdatomic.h>

#include "io/net/monotonic.h"

#define TIMELINE_VARIABLE "RUBATO_TIMELINE"

/* The rest of it is in timeline.c. */
typedef struct {
    _Atomic bool is_on;
} Timeline;

/* It is off. (transfer full) */
Timeline *timeline_new(uint32_t node);

/* Stops it, if it is on. NULL is allowed. */
void timeline_free(Timeline *timeline);

/* What has to be added to this node's time. */
typedef struct {
    int64_t offset_ns;
    uint64_t error_ns; /* it is wrong by this at most */
    bool is_own;       /* nobody has told the other time, so this node's stays; no bound is known */
} TimelineClock;

/* A question to the scheduler's node: sent, and answered, by this node's clock; and what that
 * node's clock showed in between. */
typedef struct {
    int64_t sent_ns, answered_ns;
    int64_t other_ns;
} TimelineProbe;

/* The clock from the probe with the shortest round trip: its other time was shown in the middle of
 * it, or at most half of it away. n is not 0. */
TimelineClock timeline_estimate(const TimelineProbe *probes, size_t n);

/* Starts recording into this file, which is made, or emptied. clock NULL: it is told by
 * timeline_set_clock, before there are events. RUBATO_ERROR_IO. RUBATO_ERROR_INVALID: it is on. */
bool timeline_start(Timeline *timeline, const char *path, const TimelineClock *clock,
                    GError **error);
void timeline_set_clock(Timeline *timeline, const TimelineClock *clock);

/* Writes what is left, and closes the file. RUBATO_ERROR_IO: the file could not be written to the
 * end; what it has can be read. RUBATO_ERROR_INVALID: it is off. */
bool timeline_stop(Timeline *timeline, GError **error);

/* Whether events are recorded now. NULL: they are not. What is noted while it is off is ignored, so
 * this only spares the work. */
static inline bool timeline_is_on(const Timeline *timeline)
{
    /* relaxed: the lock of the buffer decides */
    return timeline != NULL && atomic_load_explicit(&timeline->is_on, memory_order_relaxed);
}

/* Now, if events are recorded; else 0. */
static inline uint64_t timeline_now(const Timeline *timeline)
{
    return timeline_is_on(timeline) ? (uint64_t)monotonic_ns() : 0;
}

/* Who does what is recorded: a worker of a task; with epoch 0 the node, between its tasks. */
typedef struct {
    uint32_t epoch; /* of the task */
    uint32_t rank;
} TimelineActor;

/* Says to which task a worker belongs. */
void timeline_name(Timeline *timeline, TimelineActor actor, const char *task);

typedef struct {
    const char *key; /* a literal; NULL: there are no more */
    uint64_t value;
} TimelineNumber;

enum { TIMELINE_MOST_NUMBERS = 3 };

/* A call on the worker's thread, or a request that went on meanwhile. */
typedef struct {
    TimelineActor actor;
    const char *what;    /* a literal, such as "Get" */
    const char *subject; /* copied, such as a table's name; NULL: there is none */
    uint64_t id;         /* of the request, among those of this worker; 0: it is a call */
    uint64_t begun_ns, ended_ns;
    TimelineNumber numbers[TIMELINE_MOST_NUMBERS];
} TimelineCall;

void timeline_note_call(Timeline *timeline, const TimelineCall *call);

/* A worker has asked for a collective. */
typedef struct {
    uint32_t rank;
    uint64_t at_ns;
} TimelineTick;

/* A worker's part in a collective. */
typedef struct {
    TimelineActor actor;
    const char *operation; /* a literal, such as "allreduce" */
    const char *name;      /* of the tensor; copied */
    uint32_t set;          /* of workers */
    uint32_t n_together;   /* tensors that travel together */
    uint64_t number;       /* of the operation: the same on all nodes */
    uint64_t n_bytes;
    bool has_failed;
    uint64_t asked_ns;   /* by this worker */
    uint64_t decided_ns; /* all have asked */
    uint64_t begun_ns;   /* a thread has begun its work */
    uint64_t ended_ns;
    const TimelineTick *ticks; /* workers that had to come; copied */
    uint32_t n_ticks;
} TimelineOperation;

void timeline_note_operation(Timeline *timeline, const TimelineOperation *operation);

#endif
