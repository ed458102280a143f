/* A node's output, cut into lines with the node's id before each.
 *
 * On a terminal a line that begins with a carriage return is a bar: it is drawn in its place, and
 * gives way to the next line or bar. A carriage return alone takes the bar away. The environment
 * variable BAR_VARIABLE tells a node that there is such a terminal, and how many columns a bar has
 * there.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_OUTPUT_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_OUTPUT_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

/* A line longer than this goes out in pieces of this size, each as a line of its own. */
#define LINE_STREAM_MAX_BYTES (256u * 1024u)

#define BAR_VARIABLE "RUBATO_BAR_COLUMNS"

typedef struct {
    char *prefix;
    bool *bar_is_shown; /* on the terminal to which the lines go; NULL: they go elsewhere */
    GString *partial;   /* the beginning of a line whose end has not come yet */
    GArray *news;       /* of LauncherNews: what the node has told; NULL: nobody asks */
} LineStream;

/* bar_is_shown stays the caller's; all streams to one terminal share it. */
void line_stream_init(LineStream *stream, const char *prefix, bool *bar_is_shown);

/* News (launcher_news.h) are taken out of the lines from now on, and added to the array, which
 * stays the caller's. */
void line_stream_hear(LineStream *stream, GArray *news);
void line_stream_clear(LineStream *stream);

/* Appends to `out` every line that `data` completes. */
void line_stream_feed(LineStream *stream, const char *data, size_t length, GString *out);

/* Appends the last line, if it has no end yet, and ends it. */
void line_stream_finish(LineStream *stream, GString *out);

/* Takes a bar away, if one is shown. */
void line_stream_erase_bar(bool *bar_is_shown, GString *out);

#endif
