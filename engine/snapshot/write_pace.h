/* How fast a node writes a snapshot: slowly beside training, and at full speed otherwise.
 *
 * The thread that writes takes a processor, and its share of the memory's speed, from the workers.
 * So where rows of the part change, it pauses after each slice, in proportion to the processor time
 * that the slice took. Where nothing changes, it does not pause, nor where rows change so fast that
 * pauses cost the workers more than they spare them. When all rows have been written, it pauses
 * after each piece of a file that the disk has taken, so that others may use the disk.
 *
 * Threads: the one that writes. */
#ifndef RUBATO_ENGINE_SNAPSHOT_WRITE_PACE_H
#define RUBATO_ENGINE_SNAPSHOT_WRITE_PACE_H

#include "engine/engine_private.h"
#include "io/store/part_rows.h"
#include "io/store/spill_file.h"

/* Pauses are so many times as long as what they follow: the thread then has a tenth of the time of
 * one processor. */
#define WRITE_PACE_TIMES 9

/* A pause after a piece of a file is so many times as long as the disk took for it; and all of them
 * in a snapshot take so many ns at most, for somebody may wait for its end. */
#define WRITE_PACE_DISK_TIMES 2
#define WRITE_PACE_DISK_MOST_NS ((int64_t)3 * 1000 * 1000 * 1000)

/* The longest pause after a slice, and the longest step of one, in ns. */
#define WRITE_PACE_MOST_NS ((int64_t)50 * 1000 * 1000)
#define WRITE_PACE_STEP_NS ((int64_t)2 * 1000 * 1000)

/* A pause in which more would be copied than a slice has is none. */
#define WRITE_PACE_SLICE_BYTES PART_ROWS_BYTES

/* All pauses of a snapshot together take one of so many parts, at most, of the time that passed
 * between the one before and this one. */
#define WRITE_PACE_OF_GAP 2

/* Training goes on if it has changed rows within so many ns: it may compute for long between. */
#define WRITE_PACE_RECENT_NS ((int64_t)1000 * 1000 * 1000)

/* What it measures by, and how it waits. */
struct WritePaceOps {
    int64_t (*processor_ns)(void *data); /* of the calling thread */
    int64_t (*now_ns)(void *data);
    void (*pause)(int64_t ns, void *data);
    void *data;
};

/* The clocks of the system. */
extern const WritePaceOps WRITE_PACE_USUAL;

typedef struct {
    const WritePaceOps *ops;
    SpillFile *spill;     /* of the images; NULL: full speed */
    int64_t left_ns;      /* that it may still pause */
    int64_t processor_ns; /* of the thread, when the present slice began */
    uint64_t n_changes;   /* of the part, when the last slice was read */
    bool has_changed;     /* rows, since the snapshot began */
    int64_t changed_ns;   /* then: when that was seen last */
    int64_t looked_ns;    /* when it was looked how much is copied */
    uint64_t n_taken;     /* bytes of copies by then */
    double copied_per_ns; /* bytes of them, between the last two of these looks */
    bool has_paused;      /* after the last slice */
    int64_t disk_left_ns; /* that it may still pause after pieces of files */
    bool has_piece;       /* the disk has taken one of the present file */
    int64_t piece_ns;     /* then: when that one began */
} WritePace;

/* The next slices are written from now on. spill: holds the copies of rows that change meanwhile;
 * NULL: it never pauses. before_ns: when the snapshot before was written, by ops->now_ns; 0: there
 * was none, or that does not matter. (ops, spill: transfer none) */
void write_pace_start(WritePace *pace, const WritePaceOps *ops, SpillFile *spill,
                      int64_t before_ns);

/* The next slices are of another part. */
void write_pace_begin_part(WritePace *pace);

/* A slice has been written; pauses if training goes on. n_changes: how many times requests have
 * changed rows of the part since the cut, as seen when the slice was read. */
void write_pace_follow_slice(WritePace *pace, uint64_t n_changes);

/* All rows of all parts have been written, and the disk is to take the file of one, piece by
 * piece. */
void write_pace_begin_file(WritePace *pace);

/* Before each piece: pauses if there was one before. n_changes: of the part, as seen now. False:
 * there are no pauses, so there need be no pieces. */
bool write_pace_follow_piece(WritePace *pace, uint64_t n_changes);

#endif
