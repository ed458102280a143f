/* The pace of a snapshot.
 *
 * Why a snapshot ends although training never does: each slice is a bounded number of rows, or of
 * copies, and no pause after one is longer than WRITE_PACE_MOST_NS. There are as many slices as
 * the part has rows and blocks of copies, and each row is read or copied once. Then each file has
 * as many pieces as it has bytes.
 *
 * Why copies do not go to the disk because of pauses: a longer snapshot has more rows copied, each
 * once. A pause ends when copies take half of their memory, and there is none until they take less.
 * It is made of steps, so that this is seen in time: in a step a fast worker on a table of 64-byte
 * rows makes 4 MB of copies.
 *
 * Why there is none where rows change fast. As long as rows are left to be read, each change costs
 * a look whether the row is to be copied, and the first one of a row a copy, which is written as
 * the row would have been. So a pause spares nothing if more is copied in it than the slice before
 * it had, and the workers pay longer. When all rows have been read, nothing is copied, and what is
 * left of copies is written with pauses.
 *
 * Why pauses do not make the next snapshot late. One that is taken every T seconds, and takes W
 * without pauses, leaves T - W. The next one may pause for half of what the one before left; so
 * pauses become (T - W) / 3, and there is always time left. If W is T or more, there are none. */
#include "engine/snapshot/write_pace.h"

#include <time.h>

#include "io/net/monotonic.h"

static int64_t thread_processor_ns(void *data)
{
    struct timespec time;

    (void)data;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); /* a clock that each thread has */
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t system_now_ns(void *data)
{
    (void)data;
    return monotonic_ns();
}

static void sleep_ns(int64_t ns, void *data)
{
    (void)data;
    g_usleep((gulong)(ns / 1000));
}

const WritePaceOps WRITE_PACE_USUAL = { thread_processor_ns, system_now_ns, sleep_ns, NULL };

void write_pace_start(WritePace *pace, const WritePaceOps *ops, SpillFile *spill, int64_t before_ns)
{
    const int64_t now_ns = ops->now_ns(ops->data);

    *pace = (WritePace){ .ops = ops,
                         .spill = spill,
                         .disk_left_ns = WRITE_PACE_DISK_MOST_NS,
                         .left_ns =
                             before_ns != 0 ? (now_ns - before_ns) / WRITE_PACE_OF_GAP : INT64_MAX,
                         .processor_ns = ops->processor_ns(ops->data),
                         .looked_ns = now_ns,
                         .n_taken = spill != NULL ? spill_file_taken_bytes(spill) : 0 };
}

void write_pace_begin_part(WritePace *pace)
{
    pace->n_changes = 0;
}

static bool goes_on(WritePace *pace, uint64_t n_changes)
{
    const int64_t now_ns = pace->ops->now_ns(pace->ops->data);

    if (n_changes != pace->n_changes) {
        pace->n_changes = n_changes;
        pace->has_changed = true;
        pace->changed_ns = now_ns;
    }
    return pace->has_changed && now_ns - pace->changed_ns < WRITE_PACE_RECENT_NS;
}

/* Copies are counted by blocks of about a slice, so it is looked no more often than these come. */
static bool copies_fast(WritePace *pace, int64_t pause_ns)
{
    const int64_t now_ns = pace->ops->now_ns(pace->ops->data);

    if (now_ns - pace->looked_ns >= WRITE_PACE_STEP_NS) {
        const uint64_t n_taken = spill_file_taken_bytes(pace->spill);

        pace->copied_per_ns =
            (double)(n_taken - pace->n_taken) / (double)(now_ns - pace->looked_ns);
        pace->n_taken = n_taken;
        pace->looked_ns = now_ns;
    }
    return pace->copied_per_ns * (double)pause_ns > (double)WRITE_PACE_SLICE_BYTES;
}

void write_pace_follow_slice(WritePace *pace, uint64_t n_changes)
{
    const WritePaceOps *const ops = pace->ops;
    int64_t left_ns, began_ns;

    pace->has_paused = false;
    if (pace->spill == NULL)
        return;
    left_ns = WRITE_PACE_TIMES * (ops->processor_ns(ops->data) - pace->processor_ns);
    left_ns = MIN(left_ns, MIN(WRITE_PACE_MOST_NS, pace->left_ns));
    began_ns = ops->now_ns(ops->data);
    if (goes_on(pace, n_changes) && !copies_fast(pace, left_ns))
        for (; left_ns > 0 && spill_file_has_half(pace->spill); left_ns -= WRITE_PACE_STEP_NS) {
            ops->pause(MIN(left_ns, WRITE_PACE_STEP_NS), ops->data);
            pace->has_paused = true;
        }
    pace->left_ns -= ops->now_ns(ops->data) - began_ns; /* a pause may take longer than it should */
    pace->processor_ns = ops->processor_ns(ops->data);
}

void write_pace_begin_file(WritePace *pace)
{
    pace->n_changes = 0;
    pace->has_piece = false;
}

bool write_pace_follow_piece(WritePace *pace, uint64_t n_changes)
{
    const WritePaceOps *const ops = pace->ops;
    const int64_t most_ns = MIN(pace->left_ns, pace->disk_left_ns);
    int64_t began_ns, paused_ns;

    if (pace->spill == NULL || most_ns <= 0 || !goes_on(pace, n_changes))
        return false;
    began_ns = ops->now_ns(ops->data);
    if (pace->has_piece)
        ops->pause(MIN(WRITE_PACE_DISK_TIMES * (began_ns - pace->piece_ns), most_ns), ops->data);
    pace->has_piece = true;
    pace->piece_ns = ops->now_ns(ops->data);
    paused_ns = pace->piece_ns - began_ns;
    pace->left_ns -= paused_ns;
    pace->disk_left_ns -= paused_ns;
    return true;
}
