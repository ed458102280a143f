/* The streams that an engine writes, on the node with worker 0: their kinds' writers.
 *
 * Threads: one at a time, except stream_writer_tell: one at a time for each writer. */
#ifndef RUBATO_IO_STREAM_STREAM_WRITERS_H
#define RUBATO_IO_STREAM_STREAM_WRITERS_H

#include "io/stream/stream_kind.h"

typedef struct StreamWriter StreamWriter;

/* The writer of the URI, which stays open until the list is freed. *writer is NULL if its kind has
 * none. *list is made when it is needed. The directory is there. The kind's errors. */
bool stream_writers_open(GPtrArray **list, const char *uri, const char *directory,
                         StreamWriter **writer, GError **error);

/* A version is whole. NULL is allowed. */
void stream_writer_tell(StreamWriter *writer, uint64_t version);

/* Closes all; each may wait for what its kind has under way. NULL is allowed. */
void stream_writers_free(GPtrArray *list);

#endif
