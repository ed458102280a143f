/* The launcher's own output: what nodes have written and what the launcher tells, until the
 * standard output and the standard error take it. A reader may be slow, or gone.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_WRITER_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_WRITER_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

enum { WRITER_OUT, WRITER_ERROR, WRITER_N_STREAMS };

typedef struct {
    GString *waiting[WRITER_N_STREAMS];
    size_t written[WRITER_N_STREAMS]; /* bytes of it that are written */
    bool is_closed[WRITER_N_STREAMS]; /* nobody reads there any more */
    bool bar_is_shown;                /* on the terminal: see launcher_output.h */
} LauncherWriter;

void launcher_writer_init(LauncherWriter *writer);
void launcher_writer_clear(LauncherWriter *writer);

/* Adds a line of the launcher itself to the standard error. */
void launcher_writer_tell(LauncherWriter *writer, const char *format, va_list arguments)
    G_GNUC_PRINTF(2, 0);

/* Whether there is output left. What is written is dropped, and so is what can never be. */
bool launcher_writer_has_waiting(LauncherWriter *writer, int stream);

/* Writes a piece of what waits; the stream is ready. Returns false if nobody reads there any
 * more. */
bool launcher_writer_write_piece(LauncherWriter *writer, int stream);

/* Nobody reads any of it any more. */
void launcher_writer_close(LauncherWriter *writer);

#endif
