/* Clocks and the min clock.
 *
 * counts is a ring: counts[c & mask] live sources stand at clock c, for the clocks of the window
 * [base, base + mask]. The min clock lies in the window. When the last source leaves it, the search
 * goes up the ring. If the ring is empty, which takes at least `mask` clocks of one source, the
 * search goes through all sources. The window is no smaller than the number of sources, so both
 * searches take constant time per clock on average, even if a clock jumps far.
 *
 * A single source is its own minimum and needs no ring. Its clocks change one cache line only,
 * because the owner may be another thread each time.
 *
 * Thread: the shard's present owner. */
#include "models/progress.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MIN_WINDOW 64u

struct RubatoProgress {
    uint32_t n_sources;
    uint32_t n_live;
    uint32_t n_near; /* live sources in the window */
    uint64_t min;
    uint64_t base; /* where the window begins */
    uint64_t mask; /* of the ring; its size less one */
    uint32_t *counts;
    uint64_t clocks[]; /* of each source */
};

RubatoProgress *progress_new(uint32_t n_sources)
{
    const size_t n_bytes = sizeof(RubatoProgress) + MAX(1, (size_t)n_sources) * sizeof(uint64_t);
    RubatoProgress *progress = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    uint64_t window = MIN_WINDOW;

    if (progress == NULL)
        return NULL;
    memset(progress, 0, n_bytes);
    while (window < n_sources)
        window *= 2;
    progress->n_sources = progress->n_live = progress->n_near = n_sources;
    progress->min = n_sources == 0 ? RUBATO_CLOCK_RETIRED : 0;
    progress->mask = window - 1;
    progress->counts = g_try_new0(uint32_t, window);
    if (progress->counts == NULL) {
        progress_free(progress);
        return NULL;
    }
    progress->counts[0] = n_sources;
    return progress;
}

void progress_free(RubatoProgress *progress)
{
    if (progress == NULL)
        return;
    g_free(progress->counts);
    free(progress);
}

static bool is_near(const RubatoProgress *progress, uint64_t clock)
{
    return clock >= progress->base && clock - progress->base <= progress->mask;
}

static void enter(RubatoProgress *progress, uint64_t clock)
{
    if (!is_near(progress, clock))
        return;
    progress->counts[clock & progress->mask]++;
    progress->n_near++;
}

/* The ring is empty: moves the window to the slowest of the sources, all of which are beyond it. */
static void move_window(RubatoProgress *progress)
{
    progress->base = progress->min = progress->clocks[progress_slowest(progress)];
    for (uint32_t i = 0; i < progress->n_sources; i++)
        if (progress->clocks[i] != RUBATO_CLOCK_RETIRED)
            enter(progress, progress->clocks[i]);
}

static void find_min(RubatoProgress *progress)
{
    if (progress->n_live == 0)
        progress->min = RUBATO_CLOCK_RETIRED;
    else if (progress->n_near == 0)
        move_window(progress);
    else
        while (progress->counts[progress->min & progress->mask] == 0)
            progress->min++;
}

bool progress_advance(RubatoProgress *progress, uint32_t source, uint64_t clock, uint64_t *from)
{
    assert(source < progress->n_sources);
    const uint64_t old = progress->clocks[source];

    if (clock <= old)
        return false;
    progress->clocks[source] = clock;
    *from = old;
    if (progress->n_sources == 1) {
        progress->min = clock;
        return true;
    }
    if (is_near(progress, old)) {
        progress->counts[old & progress->mask]--;
        progress->n_near--;
    }
    if (clock == RUBATO_CLOCK_RETIRED)
        progress->n_live--;
    else
        enter(progress, clock);
    if (old == progress->min)
        find_min(progress);
    return true;
}

uint32_t progress_n_sources(const RubatoProgress *progress)
{
    return progress->n_sources;
}

uint64_t progress_clock(const RubatoProgress *progress, uint32_t source)
{
    assert(source < progress->n_sources);
    return progress->clocks[source];
}

uint64_t progress_min(const RubatoProgress *progress)
{
    return progress->min;
}

uint32_t progress_slowest(const RubatoProgress *progress)
{
    uint64_t lowest = RUBATO_CLOCK_RETIRED;
    uint32_t slowest = UINT32_MAX;

    for (uint32_t i = 0; i < progress->n_sources; i++)
        if (progress->clocks[i] < lowest) {
            lowest = progress->clocks[i];
            slowest = i;
        }
    return slowest;
}
