#include "engine/launch/launcher_writer.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "engine/launch/launcher_output.h"

void launcher_writer_init(LauncherWriter *writer)
{
    *writer = (LauncherWriter){ .bar_is_shown = false };
    for (int stream = 0; stream < WRITER_N_STREAMS; stream++)
        writer->waiting[stream] = g_string_new(NULL);
}

void launcher_writer_clear(LauncherWriter *writer)
{
    for (int stream = 0; stream < WRITER_N_STREAMS; stream++)
        g_string_free(writer->waiting[stream], TRUE);
}

void launcher_writer_tell(LauncherWriter *writer, const char *format, va_list arguments)
{
    GString *const out = writer->waiting[WRITER_ERROR];

    line_stream_erase_bar(&writer->bar_is_shown, out);
    g_string_append(out, "rubato: ");
    g_string_append_vprintf(out, format, arguments);
    g_string_append_c(out, '\n');
}

bool launcher_writer_has_waiting(LauncherWriter *writer, int stream)
{
    if (!writer->is_closed[stream] && writer->written[stream] < writer->waiting[stream]->len)
        return true;
    g_string_truncate(writer->waiting[stream], 0);
    writer->written[stream] = 0;
    return false;
}

bool launcher_writer_write_piece(LauncherWriter *writer, int stream)
{
    const GString *const waiting = writer->waiting[stream];
    const int fd = stream == WRITER_OUT ? STDOUT_FILENO : STDERR_FILENO;

    /* A pipe that is ready takes this much without blocking. */
    const size_t length = MIN(waiting->len - writer->written[stream], PIPE_BUF);
    const ssize_t n = write(fd, waiting->str + writer->written[stream], length);

    if (n >= 0)
        writer->written[stream] += (size_t)n;
    else if (errno != EINTR && errno != EAGAIN)
        writer->is_closed[stream] = true;
    return !writer->is_closed[stream];
}

void launcher_writer_close(LauncherWriter *writer)
{
    for (int stream = 0; stream < WRITER_N_STREAMS; stream++)
        writer->is_closed[stream] = true;
}
