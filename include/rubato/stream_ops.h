/* What a kind of stream implements: how the versions of a model come from the run that trains it to
 * those who follow.
 *
 * Whatever the kind, the nodes of a run write versions into a directory, as snapshots (snapshot.h),
 * and a follower reads them from a directory. A kind says which directory the nodes write to. It is
 * told of each version that is whole there. If followers do not see this directory, it brings the
 * versions to one that they see: a version is a folder there, which gets its name when all its
 * files are in it. A follower then applies each version once, in order, as for any kind.
 *
 * The URI of a stream is "NAME:REST", with the kind's name. A program, or a plug-in file, registers
 * a kind of its own: plugin.h. A built-in one is a file of io/stream/ that ends in its constant
 * RubatoStreamOps, and a line in the array of io/stream/stream_kind.c.
 *
 * Threads: told at each op. No op may call an engine or a follower. */
#ifndef RUBATO_STREAM_OPS_H
#define RUBATO_STREAM_OPS_H

#include <rubato/error.h>
#include <stdbool.h>
#include <stdint.h>

G_BEGIN_DECLS

/* A kind's own: what it has for a stream that is written, and for one that is followed. */
typedef struct RubatoStreamWriter RubatoStreamWriter;
typedef struct RubatoStreamReader RubatoStreamReader;

/* The side of the run, on the node with worker 0 alone. The first task that streams to a URI opens
 * the writer, and the engine's end closes it. So between two tasks it is open, too. */
typedef struct {
    /* The thread of the engine's calls. The directory is that of find_directory, and is there. NULL
     * with an error: the task does not begin. */
    RubatoStreamWriter *(*open)(const char *rest, const char *directory, GError **error);

    /* A version is whole in the directory. It may be gone again: only so many are kept. Any thread,
     * one at a time. It must not wait, since the next version waits for it; what takes long is for
     * a thread of the writer. */
    void (*written)(RubatoStreamWriter *writer, uint64_t version);

    /* The thread of the engine's calls. It may wait a while for what is still under way. */
    void (*close)(RubatoStreamWriter *writer);
} RubatoStreamWriterOps;

/* The side of a follower. */
typedef struct {
    /* The thread that makes the follower. *directory is where its versions will be; it need not be
     * there yet. (transfer full) It does not wait for the run, which need not have begun. */
    RubatoStreamReader *(*open)(const char *rest, char **directory, GError **error);

    /* False with an error: why no versions come, such as that nobody sends any. The follower gives
     * it to who waits for a version in vain. The thread that advances the follower. May be NULL. */
    bool (*check)(RubatoStreamReader *reader, GError **error);

    /* The thread that frees the follower. */
    void (*close)(RubatoStreamReader *reader);
} RubatoStreamReaderOps;

typedef struct {
    const char *name;
    const char *form; /* what a URI looks like, for messages: "file:DIR, the directory of its
                       * versions" */

    /* The directory to which the nodes write; all see it under this path. Nothing is looked at or
     * made. NULL with RUBATO_ERROR_INVALID: the URI makes no sense. Any thread. (transfer full) */
    char *(*find_directory)(const char *rest, GError **error);

    const RubatoStreamWriterOps *writer; /* NULL: nobody need be told of versions */
    const RubatoStreamReaderOps *reader; /* NULL: followers see the same directory */
} RubatoStreamOps;

G_END_DECLS

#endif
