/* Models that stream: while a task runs, its tables flow out in numbered versions.
 *
 * A version is a snapshot (snapshot.h) of the tables: a true cut, whole or not there, with
 * checksums. The first one holds all rows. Each of the others holds the rows that have changed,
 * come or gone since the one before, on which it builds.
 *
 * A stream is named by a URI. There is one kind:
 *
 *   file:DIR    a directory of snapshots, which all nodes see under the same path. One run at a
 *               time streams into it: another task that begins to fails with RUBATO_ERROR_IO.
 *               rubato_snapshot_open and `rubato checkpoint` read it, too.
 *
 * Threads: any. */
#ifndef RUBATO_STREAM_H
#define RUBATO_STREAM_H

#include <rubato/snapshot.h>

G_BEGIN_DECLS

/* What RubatoTaskStream.full_every and .keep are if they are 0. */
#define RUBATO_STREAM_FULL_EVERY 64u
#define RUBATO_STREAM_KEEP 64u

/* What streams out of a task (RubatoTask.stream). A version flows out at these times, and one when
 * the task has ended well, so that the last one has all that its workers have added. The numbers of
 * the node with worker 0 count.
 *
 * The tables are those of which a task can take a snapshot while it uses them: rows of one length
 * that are neither evicted (max_bytes) nor expire, without replicas. Others are
 * RUBATO_ERROR_INVALID; between tasks rubato_engine_snapshot() writes them to the same directory.
 *
 * A version that fails, for example on a full disk, is told in the log; the next one is asked for
 * after a second at the earliest, and has what changed in the meantime, too. */
struct RubatoTaskStream {
    const char *uri;
    const char *const *tables; /* which ones, ended by NULL; NULL: those of the task */
    RubatoPacking packing;
    double every_s;        /* so many seconds after the one before was asked for; 0: not by time */
    uint64_t every_clocks; /* when the slowest worker has so many clocks more on the task's first
                            * table, as far as the node has heard; 0: not by clocks */
    uint32_t full_every;   /* of so many versions one holds all rows; 0: 64 */
    uint32_t keep; /* the newest so many versions stay, and those that they build on; 0: 64 */
};

G_END_DECLS

#endif
