/* What bare threads lose beside a bare thread that writes their rows.
 *
 * Threads: any; the threads that it starts are its own. */
#ifndef RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_BARE_H
#define RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_BARE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    size_t n_rows;     /* of 16 f32 */
    double keys_per_s; /* how fast it is alone, at most */
    bool cuts; /* a row is copied before it changes for the first time, until it is written */
    const char *directory;
} SnapshotBare;

typedef struct {
    double share;     /* of its rate alone that it keeps */
    double p99_times; /* the 99th of 100 iterations takes so many times as long as alone */
} SnapshotBareKept;

/* One thread reads 100 random rows and adds to them, again and again: alone, while another thread
 * copies all rows to a file, synchronises it, and begins anew, and alone once more. Between its
 * iterations it computes without memory, so that alone it is as fast as it should be: then it
 * touches as many rows as who is measured beside it. */
bool snapshot_bare_measure(const SnapshotBare *bare, SnapshotBareKept *kept, GError **error);

#endif
