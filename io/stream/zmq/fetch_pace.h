/* How much a reader asks for at a time, so that it hears of the publisher again soon, however slow
 * the link is: it begins with little, and asks for more as long as answers come at once. What is
 * under way on a slow link is in front of everything else that is asked there.
 *
 * Threads: one at a time; it never reads the time. */
#ifndef RUBATO_IO_STREAM_ZMQ_FETCH_PACE_H
#define RUBATO_IO_STREAM_ZMQ_FETCH_PACE_H

#include <stdint.h>

/* Questions under way; below the answers that a publisher keeps for a reader. */
#define FETCH_MOST_WINDOW 8u

typedef struct {
    uint32_t n_bytes; /* of each question, at most */
    uint32_t window;  /* questions under way, at most */
    int64_t least_ms; /* that an answer took; -1: none has come */
} FetchPace;

void fetch_pace_init(FetchPace *pace);

/* An answer has come, so long after it was asked for. */
void fetch_pace_answered(FetchPace *pace, int64_t took_ms);

/* None has come in time. */
void fetch_pace_missed(FetchPace *pace);

#endif
