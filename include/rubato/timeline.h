/* The timeline of a node: what its workers do, and when, as a Chrome trace. Viewers such as
 * ui.perfetto.dev and chrome://tracing show it. How-to: docs/howto/see-where-time-goes.md.
 *
 * The environment variable RUBATO_TIMELINE=FILE starts it with the engine, and the engine's end
 * stops it. These calls record a part of a run instead. They are not collective: each node records
 * what its own workers do.
 *
 * Threads: any, also workers in their tasks. In callbacks and in handlers they are refused, because
 * they wait: for the scheduler's node, ten seconds at most, and for the file.
 * RUBATO_ERROR_INVALID. */
#ifndef RUBATO_TIMELINE_H
#define RUBATO_TIMELINE_H

#include <rubato/engine.h>

G_BEGIN_DECLS

/* Starts recording into a file, which is made, or emptied. In a run of several nodes the node's id
 * is put in front of the name's extension: "trace.json" becomes "trace.node-3.json". Requests that
 * are under way are not recorded. RUBATO_ERROR_IO: the file cannot be made. RUBATO_ERROR_INVALID:
 * the timeline is being recorded already. */
RUBATO_API bool rubato_engine_start_timeline(RubatoEngine *engine, const char *file,
                                             GError **error);

/* Stops recording; the file is whole when the call returns. RUBATO_ERROR_IO: not all could be
 * written, and the log has said why; what is in the file can be read. RUBATO_ERROR_INVALID: nothing
 * is being recorded. */
RUBATO_API bool rubato_engine_stop_timeline(RubatoEngine *engine, GError **error);

G_END_DECLS

#endif
