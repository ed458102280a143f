/* The error for a row that cannot be read: file, line and column. They are searched only now,
 * because blocks begin anywhere. Runs on the thread that parses. */
#include "io/data/input/input_state.h"

#include <string.h>

#define PIECE_BYTES ((size_t)64 * 1024)
#define FOUND_MAX 24

/* Line and column, both from 1, of a byte of the unpacked text. */
static bool locate(const Input *input, uint64_t offset, uint64_t *line, uint64_t *column)
{
    g_autoptr(ByteSource) source = byte_source_open(input->path, NULL);
    g_autofree char *buffer = g_malloc(PIECE_BYTES);
    uint64_t at = 0, line_start = 0;
    size_t got;

    *line = 1;
    while (source != NULL && at < offset) {
        const size_t wanted = (size_t)MIN(PIECE_BYTES, offset - at);

        if (!byte_source_read(source, buffer, wanted, &got, NULL) || got == 0)
            return false;
        for (const char *next = buffer; (next = memchr(next, '\n', (size_t)(buffer + got - next)));
             next++) {
            ++*line;
            line_start = at + (uint64_t)(next - buffer) + 1;
        }
        at += got;
    }
    *column = offset - line_start + 1;
    return source != NULL;
}

char *input_row_place(const Input *input, uint64_t offset)
{
    uint64_t line, column;

    return !input->parser->ops->binary && locate(input, offset, &line, &column)
               ? g_strdup_printf("%s:%" G_GUINT64_FORMAT, input->path, line)
               : g_strdup_printf("%s: byte %" G_GUINT64_FORMAT, input->path, offset);
}

/* What stands at the fault, up to the next blank. */
static char *found_text(const RowText *text, const RowFault *fault)
{
    const char *const end = text->bytes + text->size;
    size_t length = 0;

    if (fault->found[0] != '\0')
        return g_strdup(fault->found);
    if (fault->at >= end)
        return g_strdup("the end of the file");
    while (length < FOUND_MAX && fault->at + length < end &&
           memchr(" \t\r\n#", fault->at[length], 5) == NULL)
        length++;
    if (length == 0)
        return g_strdup(*fault->at == '\n' || *fault->at == '\r' ? "the end of the line"
                        : *fault->at == '#'                      ? "a comment"
                                                                 : "a blank");
    if (*fault->at == '\0')
        return g_strdup("a zero byte");
    g_autofree char *token = g_strndup(fault->at, length);
    g_autofree char *escaped = g_strescape(token, NULL);
    return g_strdup_printf("\"%s\"", escaped);
}

void input_report(Input *input, const RowText *text, const RowFault *fault, GError **error)
{
    const int code = fault->is_mismatch ? RUBATO_ERROR_MISMATCH : RUBATO_ERROR_FORMAT;
    uint64_t offset, line, column;

    if (fault->out_of_memory) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "%s: no memory for the rows from byte %" G_GUINT64_FORMAT " on", input->path,
                    text->offset);
        return;
    }
    g_autofree char *found = found_text(text, fault);
    offset = text->offset + (uint64_t)(fault->at - text->bytes);
    if (!input->parser->ops->binary && locate(input, offset, &line, &column))
        g_set_error(error, RUBATO_ERROR, code,
                    "%s:%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT ": expected %s, found %s",
                    input->path, line, column, fault->expected, found);
    else
        g_set_error(error, RUBATO_ERROR, code,
                    "%s: byte %" G_GUINT64_FORMAT ": expected %s, found %s", input->path, offset,
                    fault->expected, found);
}
