/* A file's blocks: where they begin and end, their text, their rows.
 *
 * The text alone decides where a block begins: at the first row that starts at or behind k ×
 * block_bytes. Any reader that sees the text from the byte before finds the same place, and the end
 * of one block is the beginning of the next.
 *
 * Runs on the calling thread. */
#include "io/data/input/input_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)64 * 1024)
#define BLOCK_MIN_BYTES ((uint64_t)16 * 1024)
#define BLOCK_MAX_BYTES ((uint64_t)1024 * 1024)
#define BLOCKS_WANTED 64u
#define PACKED_TIMES 4u /* how much larger the text is than the file, about */

/* ---- memory ---- */

void text_buffer_clear(TextBuffer *buffer)
{
    g_free(buffer->bytes);
    *buffer = (TextBuffer){ NULL, 0 };
}

bool text_buffer_want(const Input *input, TextBuffer *buffer, size_t size, GError **error)
{
    char *larger;

    if (buffer->bytes != NULL && size <= buffer->capacity)
        return true;
    larger = g_try_realloc(buffer->bytes, size + ROW_TEXT_PADDING);
    if (larger == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "%s: no memory for %zu bytes of text at once", input->path, size);
        return false;
    }
    buffer->bytes = larger;
    buffer->capacity = size;
    return true;
}

RowText text_buffer_text(TextBuffer *buffer, size_t size, uint64_t offset)
{
    memset(buffer->bytes + size, 0, ROW_TEXT_PADDING);
    return (RowText){ .bytes = buffer->bytes, .size = size, .offset = offset };
}

bool input_row_too_long(const Input *input, uint64_t offset, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: expected the end of the row at byte %" G_GUINT64_FORMAT " within 2^30 bytes",
                input->path, offset);
    return false;
}

/* ---- where blocks begin ---- */

bool input_find_start(const Input *input, const RowText *window, uint64_t block, bool to_the_end,
                      uint64_t *start)
{
    const uint64_t from = block * input->block_bytes;
    const uint64_t end = window->offset + window->size;
    size_t at;

    if (from <= input->file->first_row) {
        *start = input->file->first_row;
        return true;
    }
    if (from < end) {
        at = row_parser_find_row(input->parser, input->file, window,
                                 (size_t)(from - window->offset));
        if (at != ROW_NOT_FOUND) {
            *start = window->offset + at;
            return true;
        }
    }
    *start = end;
    return to_the_end;
}

/* ---- plain files ---- */

static bool read_at(const Input *input, uint64_t offset, char *to, size_t size, GError **error)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(input->fd, to + done, size - done, (off_t)(offset + done));

        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", input->path,
                        g_strerror(errno));
        else
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        "%s: ends at byte %" G_GUINT64_FORMAT ", but had %" G_GUINT64_FORMAT
                        " bytes when it was opened; leave inputs alone while they are read",
                        input->path, offset + done, input->size);
        return false;
    }
    return true;
}

static bool read_plain(Input *input, uint64_t block, TextBuffer *buffer, RowText *text,
                       GError **error)
{
    const uint64_t low = block * input->block_bytes;
    const uint64_t begin = low > input->file->first_row ? low - 1 : input->file->first_row;
    uint64_t slack = INPUT_SLACK_BYTES, start = 0, end = 0;

    for (;;) {
        const uint64_t stop =
            MIN(MAX(low + input->block_bytes, input->file->first_row) + slack, input->size);
        const size_t size = stop > begin ? (size_t)(stop - begin) : 0;

        /* one byte more, for the newline of a last line that has none */
        if (!text_buffer_want(input, buffer, size + 1, error) ||
            !read_at(input, begin, buffer->bytes, size, error))
            return false;
        const RowText window = text_buffer_text(buffer, size, begin);
        const bool to_the_end = stop == input->size;
        if (input_find_start(input, &window, block, to_the_end, &start) &&
            input_find_start(input, &window, block + 1, to_the_end, &end))
            break;
        if (slack > INPUT_ROW_MAX_BYTES)
            return input_row_too_long(input, MAX(start, begin), error);
        slack *= 4;
    }
    *text = (RowText){ .bytes = buffer->bytes + (start - begin),
                       .size = (size_t)(end - start),
                       .offset = start };
    return true;
}

/* ---- either ---- */

bool input_read(Input *input, uint64_t block, TextBuffer *buffer, RowText *text, bool *there,
                GError **error)
{
    bool ok;

    if (!input->packed) {
        *there = block < input->n_blocks;
        ok = !*there || read_plain(input, block, buffer, text, error);
    } else {
        pthread_mutex_lock(&input->stream_lock);
        ok = input_stream_read(input, block, buffer, text, there, error);
        pthread_mutex_unlock(&input->stream_lock);
    }
    if (!ok || !*there)
        return ok;
    /* The text lies in the buffer, which has room for a newline and the padding. */
    char *end = (char *)(uintptr_t)text->bytes + text->size;
    if (!input->parser->ops->binary && text->size > 0 && end[-1] != '\n') {
        *end++ = '\n';
        text->size++;
    }
    memset(end, 0, ROW_TEXT_PADDING);
    return true;
}

/* ---- rows ---- */

/* Counts a bad row; false if it is one too many. */
static bool allow(BadRows *bad_rows)
{
    /* relaxed: a count, compared only with its own earlier value */
    return bad_rows == NULL ||
           atomic_fetch_add_explicit(&bad_rows->n, 1, memory_order_relaxed) < bad_rows->max;
}

/* Where to continue behind a row that cannot be read; NULL: nowhere. */
static const char *next_row(const RowParserOps *ops, const RowText *text, const RowFault *fault)
{
    const char *const end = text->bytes + text->size;
    const char *newline;

    if (fault->out_of_memory || fault->resume != NULL)
        return fault->resume;
    if (ops->binary || fault->at >= end)
        return NULL;
    newline = memchr(fault->at, '\n', (size_t)(end - fault->at));
    return newline != NULL ? newline + 1 : NULL;
}

bool input_parse(Input *input, const RowText *text, RowBlock *rows, BadRows *bad_rows,
                 uint64_t *n_bad, GError **error)
{
    const RowParserOps *ops = input->parser->ops;
    const char *const end = text->bytes + text->size;
    RowText rest = *text;

    while (rest.size > 0) {
        RowFault fault = { .at = NULL };

        if (ops->parse(input->parser, input->file, &rest, rows, &fault))
            break;
        const char *const next = next_row(ops, &rest, &fault);
        if (next == NULL || !allow(bad_rows)) {
            input_report(input, text, &fault, error);
            return false;
        }
        ++*n_bad;
        rest = (RowText){ .bytes = next,
                          .size = (size_t)(end - next),
                          .offset = text->offset + (uint64_t)(next - text->bytes) };
    }
    return true;
}

/* ---- life ---- */

static bool read_head(Input *input, GError **error)
{
    g_autoptr(ByteSource) source = byte_source_open(input->path, error);
    TextBuffer buffer = { NULL, 0 };
    RowFault fault = { .at = NULL };
    size_t got;

    if (source == NULL || !text_buffer_want(input, &buffer, HEAD_BYTES, error))
        return false;
    bool ok = byte_source_read(source, buffer.bytes, HEAD_BYTES, &got, error);
    if (ok) {
        RowText head = text_buffer_text(&buffer, got, 0);

        input->packed = byte_source_is_packed(source);
        head.file_size = input->packed ? 0 : input->size;
        input->file = row_parser_begin_file(input->parser, &head, &fault);
        ok = input->file != NULL;
        if (!ok)
            input_report(input, &head, &fault, error);
    }
    text_buffer_clear(&buffer);
    return ok;
}

/* Anything but a regular file can be read only once. */
static bool open_file(Input *input, struct stat *status, GError **error)
{
    const bool there = stat(input->path, status) == 0;

    if (there && !S_ISREG(status->st_mode)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: is a %s; name a file", input->path,
                    S_ISDIR(status->st_mode) ? "directory" : "pipe or device");
        return false;
    }
    input->fd = there ? open(input->path, O_RDONLY | O_CLOEXEC) : -1;
    if (input->fd < 0 || fstat(input->fd, status) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be opened: %s", input->path,
                    g_strerror(errno));
        return false;
    }
    return true;
}

static Input *new_input(const char *path, RowParser *parser)
{
    Input *input = g_new0(Input, 1);

    input->path = g_strdup(path);
    input->parser = parser;
    input->fd = -1;
    pthread_mutex_init(&input->stream_lock, NULL);
    g_queue_init(&input->parked);
    return input;
}

Input *input_new_in_memory(const char *name, RowParser *parser, uint64_t size, uint64_t n_blocks)
{
    Input *input = new_input(name, parser);

    input->size = size;
    input->n_blocks = n_blocks;
    return input;
}

Input *input_open(const char *path, RowParser *parser, GError **error)
{
    g_autoptr(Input) input = new_input(path, parser);
    struct stat status;

    if (!open_file(input, &status, error))
        return NULL;
    input->size = (uint64_t)status.st_size;
    input->modified_ns =
        (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec;
    if (!read_head(input, error))
        return NULL;
    input->block_bytes = CLAMP(input->size * (input->packed ? PACKED_TIMES : 1) / BLOCKS_WANTED,
                               BLOCK_MIN_BYTES, BLOCK_MAX_BYTES);
    input->n_blocks = input->packed ? INPUT_BLOCKS_UNKNOWN
                                    : (input->size + input->block_bytes - 1) / input->block_bytes;
    return g_steal_pointer(&input);
}

void input_free(Input *input)
{
    if (input == NULL)
        return;
    input_stream_clear(input);
    pthread_mutex_destroy(&input->stream_lock);
    row_parser_end_file(input->parser, input->file);
    if (input->fd >= 0)
        close(input->fd);
    g_free(input->path);
    g_free(input);
}

const char *input_path(const Input *input)
{
    return input->path;
}

const RowFile *input_row_file(const Input *input)
{
    return input->file;
}

bool input_is_packed(const Input *input)
{
    return input->packed;
}

uint64_t input_size(const Input *input)
{
    return input->size;
}

int64_t input_modified_ns(const Input *input)
{
    return input->modified_ns;
}

uint64_t input_n_blocks(Input *input)
{
    return atomic_load_explicit(&input->n_blocks, memory_order_relaxed);
}
