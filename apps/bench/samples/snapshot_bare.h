/* What bare threads lose beside a bare thread that writes their rows.
 *
 * Threads: any; the threads that it starts are its own. */
#ifndef RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_BARE_H
#define RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_BARE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    size_t n_rows;  /* of 16 f32 */
    double seconds; /* that writing all of them takes */
    bool cuts;      /* a row is copied before it changes for the first time, until it is written */
    const char *directory;
} SnapshotBare;

/* One thread reads 100 random rows and adds to them, again and again: what share of its rate alone
 * it keeps while another one copies all rows to a file, synchronises it, and begins anew. */
bool snapshot_bare_share(const SnapshotBare *bare, double *share, GError **error);

#endif
