/* Models that stream: while a task runs, its tables flow out in numbered versions.
 *
 * A version is a snapshot (snapshot.h) of the tables: a true cut, whole or not there, with
 * checksums. The first one holds all rows. Each of the others holds the rows that have changed,
 * come or gone since the one before, on which it builds.
 *
 * A stream is named by a URI. There are two kinds, and those that are registered (plugin.h):
 *
 *   file:DIR    a directory of snapshots, which all nodes see under the same path. One run at a
 *               time streams into it: another task that begins to fails with RUBATO_ERROR_IO.
 *               rubato_snapshot_open and `rubato checkpoint` read it, too.
 *
 *   zmq:tcp://HOST:PORT?directory=DIR&secret=FILE
 *               the same directory, from which the node with worker 0 publishes versions over
 *               ZeroMQ at PORT and PORT + 1, until its engine ends. A follower needs no directory,
 *               gets versions into one of its own below TMPDIR, and asks for what it missed. Other
 *               machines reach it only with the secret of a file that `rubato secret FILE` makes.
 *
 * Threads: those of a follower as its calls say. */
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
 * Adds to tables with max_bytes, `expire` or rows of different lengths wait while a version is
 * written. Such tables with create_on_get are RUBATO_ERROR_INVALID; between
 * tasks rubato_engine_snapshot() writes them to the same directory.
 *
 * A version has its name as soon as it is written. The disk has those with all rows before, and all
 * of them when the task has ended; the others may go with the machine.
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

/* Whether a URI names a stream that can be written and followed; nothing is looked at or made.
 * RUBATO_ERROR_INVALID, which says what names one. Any thread. */
RUBATO_API bool rubato_stream_check(const char *uri, GError **error);

/* ---- publishing without a run ---- */

/* Publishes the versions in a stream's directory, as the run does that writes them, such as when
 * the run has ended. Nothing is written there; versions that somebody writes meanwhile are told
 * within a second. One at a time publishes a stream: the run, or one of these. */
typedef struct RubatoPublisher RubatoPublisher;

/* uri: that of the run, with the directory. It publishes until it is freed, by a thread of its own.
 * Errors: RUBATO_ERROR_INVALID: the URI makes no sense, or followers of such a stream need nobody
 * who publishes, as with file:DIR; _NOT_FOUND: there is no such directory; _NETWORK. Any thread.
 * (transfer full) */
RUBATO_API RubatoPublisher *rubato_publisher_new(const char *uri, GError **error);

/* Waits some seconds at most for followers that are fetching versions. NULL is allowed. One thread
 * at a time. */
RUBATO_API void rubato_publisher_free(RubatoPublisher *publisher);

/* ---- following ---- */

/* A follower has the tables of a stream in memory, as they were at one version, without the state
 * of update rules. It needs no engine.
 *
 * Threads: one thread at a time calls rubato_follower_advance and rubato_follower_go_to. Any others
 * may read meanwhile, and each call reads from one whole version. */
typedef struct RubatoFollower RubatoFollower;

typedef struct {
    const char *uri;
    const char *const *tables; /* which ones, ended by NULL; NULL: all of the first version */
    double hold_back_s;        /* a version is passed over until it is so old; 0: none is. If the
                                * stream removes versions before they are so old, there are none
                                * for the follower, ever */
    uint64_t undo_bytes;       /* memory for going back without reading: of the newest versions, the
                                * rows as they were before these; 0: 256 MiB. It reaches back to the
                                * newest version that was read as a whole, such as one with all
                                * rows */
} RubatoFollowerSpec;

/* Copies the spec, and reads nothing yet: the version is 0, which has no tables. The directory need
 * not be there yet. RUBATO_ERROR_INVALID. (transfer full) */
RUBATO_API RubatoFollower *rubato_follower_new(const RubatoFollowerSpec *spec, GError **error);

/* No thread is in one of its calls. NULL is allowed. */
RUBATO_API void rubato_follower_free(RubatoFollower *follower);

/* What a follower did. */
typedef enum {
    RUBATO_FOLLOWED_NOTHING, /* there is no newer version */
    RUBATO_FOLLOWED_NEXT,    /* it has the next version */
    RUBATO_FOLLOWED_ANEW,    /* it has read a version with all that this one builds on, and has not
                              * seen those in between: the first one that it has, or versions are
                              * gone or damaged, or another stream is there now */
} RubatoFollowed;

/* Goes to the next version, and waits for it timeout_s seconds at most (infinite: as long as it
 * takes). Each version is applied once, and in order. It is read and checked as a whole first; then
 * readers wait only while its rows are exchanged. One with all rows is read into new memory, beside
 * the tables that there are.
 *
 * Errors: RUBATO_ERROR_FORMAT: the next version is damaged, and no newer one has all rows. The
 * follower stays at its version, and goes on when there is such a one. With the same error, another
 * call waits for that. RUBATO_ERROR_NOT_FOUND: a table of the spec, or of the first version, is not
 * in the stream; _MISMATCH: a table has another shape than in the version before; _IO: as _FORMAT,
 * but another call tries it again; _MEMORY. If there is no newer version when the time is over:
 * what the stream's kind says is wrong, such as RUBATO_ERROR_NETWORK; another call tries it
 * again. */
RUBATO_API bool rubato_follower_advance(RubatoFollower *follower, double timeout_s,
                                        RubatoFollowed *followed, GError **error);

/* Goes to a version that the stream still has, or back to one whose rows are in undo_bytes, which
 * reads nothing. rubato_follower_advance then goes on behind it. RUBATO_ERROR_NOT_FOUND: there is
 * no such version any more; else as above. */
RUBATO_API bool rubato_follower_go_to(RubatoFollower *follower, uint64_t version, GError **error);

/* The number of its version, 0 before the first one, and when that was written: microseconds since
 * 1970, UTC. NULL is allowed. Any thread. */
RUBATO_API uint64_t rubato_follower_version(RubatoFollower *follower, int64_t *time_us);

/* A table that is followed. */
typedef struct {
    RubatoDtype dtype;
    RubatoShape shape;
    uint32_t width;   /* of a ragged table it means nothing */
    bool holds_range; /* its keys are first_key .. first_key + n_keys - 1 */
    RubatoKey first_key;
    uint64_t n_keys;
    uint64_t n_rows;
} RubatoFollowedTable;

/* The names of its tables, ascending, ended by NULL; none before the first version. Any thread.
 * (transfer full, g_strfreev) */
RUBATO_API char **rubato_follower_list_tables(RubatoFollower *follower);

/* RUBATO_ERROR_NOT_FOUND: it has no such table, or no version yet. Any thread. */
RUBATO_API bool rubato_follower_table(RubatoFollower *follower, const char *name,
                                      RubatoFollowedTable *table, GError **error);

/* Copies the rows of n keys, of a table whose rows have one length, into values: n × width values
 * of its dtype. A key without a row has zeros. found, if not NULL, is set to which keys have rows:
 * n flags. version, if not NULL, is set to the version that was read. RUBATO_ERROR_NOT_FOUND: as
 * above; _INVALID: the table is ragged. Any thread. */
RUBATO_API bool rubato_follower_get(RubatoFollower *follower, const char *table,
                                    const RubatoKey *keys, size_t n, void *values, bool *found,
                                    uint64_t *version, GError **error);

/* Gets the row of the i-th key where it lies: n_values values. NULL: the key has no row. It must
 * not call the follower. */
typedef void (*RubatoFollowedRowFunc)(size_t i, const void *values, uint32_t n_values,
                                      void *user_data);

/* The same for a table of any shape, row by row. */
RUBATO_API bool rubato_follower_read(RubatoFollower *follower, const char *table,
                                     const RubatoKey *keys, size_t n,
                                     RubatoFollowedRowFunc function, void *user_data,
                                     uint64_t *version, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoFollower, rubato_follower_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoPublisher, rubato_publisher_free)

G_END_DECLS

#endif
