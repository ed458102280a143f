/* A timeline from inside: the records of its buffer, and the lines that they become.
 *
 * Threads: the timeline's writer, unless a function says otherwise. */
#ifndef RUBATO_IO_TIMELINE_TIMELINE_PRIVATE_H
#define RUBATO_IO_TIMELINE_TIMELINE_PRIVATE_H

#include "io/timeline/timeline.h"

typedef enum {
    TIMELINE_RECORD_CLOCK,
    TIMELINE_RECORD_NAME,
    TIMELINE_RECORD_CALL,
    TIMELINE_RECORD_OPERATION,
} TimelineRecordKind;

/* In the buffer: then come the ticks of an operation, then a text, which ends with a 0. */
typedef struct {
    TimelineRecordKind kind;
    uint32_t n_bytes; /* of all of it: a multiple of 8 */
    bool has_text;
    union {
        TimelineClock clock; /* of what comes next */
        TimelineActor named;
        TimelineCall call;
        TimelineOperation operation;
    };
} TimelineRecord;

/* What all lines of a file have in common. */
typedef struct {
    uint32_t node;
    int64_t offset_ns; /* is added to this node's time */
} TimelineFrame;

/* Appends the record as lines of JSON, each behind ",\n". A clock changes the frame. */
void timeline_write_record(GString *text, TimelineFrame *frame, const TimelineRecord *record);

/* The same for events that were dropped at about that time. */
void timeline_write_dropped(GString *text, const TimelineFrame *frame, uint64_t at_ns,
                            uint64_t n_dropped);

#endif
