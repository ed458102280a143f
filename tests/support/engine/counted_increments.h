/* Training whose Adds are counted, with a snapshot of changes every so often: in each snapshot the
 * rows add up to exactly what the workers had counted by then, restored from its chain, too.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_TESTS_SUPPORT_ENGINE_COUNTED_INCREMENTS_H
#define RUBATO_TESTS_SUPPORT_ENGINE_COUNTED_INCREMENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double seconds, every_s; /* how long is trained, at least; how often a snapshot is asked for */
    uint32_t full_every;     /* of so many one has all rows */
    uint32_t least;          /* snapshots that must have been taken: so long is trained, too */
    uint32_t restore_every;  /* of so many one is restored, and the last one */
} CountedIncrements;

/* Trains under "asp" by four workers on two servers, and checks all snapshots. */
void counted_increments_check(const CountedIncrements *how);

#endif
