/* Cuts the bytes that come from a node into whole lines, so that lines of several nodes never mix.
 *
 * Thread: the supervisor's. */
#include "engine/launch/launcher_output.h"

#include "engine/launch/launcher_news.h"

#include <string.h>

#define ERASE_LINE "\r\033[K"

void line_stream_init(LineStream *stream, const char *prefix, bool *bar_is_shown)
{
    stream->bar_is_shown = bar_is_shown;
    stream->prefix = g_strdup(prefix);
    stream->partial = g_string_new(NULL);
    stream->news = NULL;
}

void line_stream_hear(LineStream *stream, GArray *news)
{
    stream->news = news;
}

void line_stream_clear(LineStream *stream)
{
    g_free(stream->prefix);
    g_string_free(stream->partial, TRUE);
}

void line_stream_erase_bar(bool *bar_is_shown, GString *out)
{
    if (bar_is_shown != NULL && *bar_is_shown)
        g_string_append(out, ERASE_LINE);
    if (bar_is_shown != NULL)
        *bar_is_shown = false;
}

/* Whether the line is a bar, which is then drawn. */
static bool draw_bar(const LineStream *stream, const char *data, size_t length, GString *out)
{
    const GString *partial = stream->partial;
    const bool is_bar = partial->len > 0 ? partial->str[0] == '\r' : length > 0 && data[0] == '\r';

    if (stream->bar_is_shown == NULL || !is_bar)
        return false;
    line_stream_erase_bar(stream->bar_is_shown, out);
    if (partial->len + length == 1)
        return true;
    g_string_append(out, stream->prefix);
    if (partial->len > 0)
        g_string_append_len(out, partial->str + 1, (gssize)partial->len - 1);
    g_string_append_len(out, partial->len > 0 ? data : data + 1,
                        (gssize)(partial->len > 0 ? length : length - 1));
    *stream->bar_is_shown = true;
    return true;
}

/* Takes news out of the line. Returns whether nothing else was in it. */
static bool hear(LineStream *stream, GString *line)
{
    bool any = false;

    for (LauncherNews one; launcher_news_take(line, &one); any = true)
        g_array_append_val(stream->news, one);
    return any && line->len == 0;
}

static void emit_line(LineStream *stream, const char *data, size_t length, GString *out)
{
    if (!draw_bar(stream, data, length, out)) {
        line_stream_erase_bar(stream->bar_is_shown, out);
        g_string_append(out, stream->prefix);
        g_string_append_len(out, stream->partial->str, (gssize)stream->partial->len);
        g_string_append_len(out, data, (gssize)length);
        g_string_append_c(out, '\n');
    }
    g_string_truncate(stream->partial, 0);
}

/* Appends what is kept and `length` bytes more as one line. */
static void emit(LineStream *stream, const char *data, size_t length, GString *out)
{
    if (stream->news == NULL ||
        (memchr(data, '\033', length) == NULL && strchr(stream->partial->str, '\033') == NULL)) {
        emit_line(stream, data, length, out);
        return;
    }
    g_string_append_len(stream->partial, data, (gssize)length);
    if (hear(stream, stream->partial))
        g_string_truncate(stream->partial, 0);
    else
        emit_line(stream, "", 0, out);
}

void line_stream_feed(LineStream *stream, const char *data, size_t length, GString *out)
{
    while (length > 0) {
        const size_t room = LINE_STREAM_MAX_BYTES - stream->partial->len;
        const char *end = memchr(data, '\n', MIN(length, room + 1));
        size_t taken;

        if (end != NULL) {
            taken = (size_t)(end - data) + 1;
            emit(stream, data, taken - 1, out);
        } else if (length > room) {
            taken = room;
            emit(stream, data, taken, out);
        } else {
            taken = length;
            g_string_append_len(stream->partial, data, (gssize)taken);
        }
        data += taken;
        length -= taken;
    }
}

void line_stream_finish(LineStream *stream, GString *out)
{
    if (stream->partial->len > 0)
        emit(stream, "", 0, out);
}
