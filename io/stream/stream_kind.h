/* The kinds of streams that there are, and what a URI says. See rubato/stream_ops.h.
 *
 * Threads: any. What is found stays. */
#ifndef RUBATO_IO_STREAM_STREAM_KIND_H
#define RUBATO_IO_STREAM_STREAM_KIND_H

#include <rubato/stream_ops.h>

#define STREAM_MOST_KINDS 64

/* A built-in kind, or one that was added. NULL: there is none of that name. */
const RubatoStreamOps *stream_kind_find(const char *name);

/* The name of the i-th kind, NULL past the last. */
const char *stream_kind_name(size_t i);

/* Adds one that the registry of the process has taken (models/registry.h), which says which may be
 * added. A second time nothing changes. */
void stream_kind_add(const RubatoStreamOps *ops);

/* The kind of a URI, and what the URI says behind its name. RUBATO_ERROR_INVALID. */
const RubatoStreamOps *stream_kind_of(const char *uri, const char **rest, GError **error);

/* The directory to which the nodes of a run write. RUBATO_ERROR_INVALID. (transfer full) */
char *stream_find_directory(const char *uri, GError **error);

/* Of what may be chosen. */
extern const RubatoStreamOps file_stream_ops, zmq_stream_ops;

#endif
