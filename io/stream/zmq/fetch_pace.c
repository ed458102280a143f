/* How much a reader asks for at a time. */
#include "io/stream/zmq/fetch_pace.h"

#include "io/stream/zmq/stream_message.h"

#define LEAST_BYTES ((uint32_t)8 << 10)
#define LEAST_WINDOW 2u /* the link has something to bring while the next question is on its way */
#define MOST_MS 1000    /* a third of what a reader waits for an answer */
#define SOON_MS 250 /* more than the quickest answer: what is under way takes the link so long */
#define LATE_MS 750

void fetch_pace_init(FetchPace *pace)
{
    *pace = (FetchPace){ .n_bytes = LEAST_BYTES, .window = LEAST_WINDOW, .least_ms = -1 };
}

static void ask_for_less(FetchPace *pace)
{
    if (pace->window > LEAST_WINDOW)
        pace->window /= 2;
    else if (pace->n_bytes > LEAST_BYTES)
        pace->n_bytes /= 2;
}

void fetch_pace_answered(FetchPace *pace, int64_t took_ms)
{
    if (pace->least_ms < 0 || took_ms < pace->least_ms)
        pace->least_ms = took_ms;
    const int64_t more_ms = took_ms - pace->least_ms;

    if (took_ms > MOST_MS || more_ms > LATE_MS)
        ask_for_less(pace);
    else if (more_ms > SOON_MS)
        return;
    else if (pace->n_bytes < STREAM_MOST_BYTES)
        pace->n_bytes *= 2;
    else if (pace->window < FETCH_MOST_WINDOW)
        pace->window++;
}

void fetch_pace_missed(FetchPace *pace)
{
    pace->n_bytes = LEAST_BYTES;
    pace->window = LEAST_WINDOW;
}
