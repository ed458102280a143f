/* A node's output, cut into lines with the node's id before each.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_OUTPUT_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_OUTPUT_H

#include <glib.h>
#include <stddef.h>

/* A line longer than this goes out in pieces of this size, each as a line of its own. */
#define LINE_STREAM_MAX_BYTES (256u * 1024u)

typedef struct {
    char *prefix;
    GString *partial; /* the beginning of a line whose end has not come yet */
} LineStream;

void line_stream_init(LineStream *stream, const char *prefix);
void line_stream_clear(LineStream *stream);

/* Appends to `out` every line that `data` completes. */
void line_stream_feed(LineStream *stream, const char *data, size_t length, GString *out);

/* Appends the last line, if it has no end yet, and ends it. */
void line_stream_finish(LineStream *stream, GString *out);

#endif
