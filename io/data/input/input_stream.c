/* Packed files: one stream of text for all callers.
 *
 * The stream holds the text from `base` on, where block `next` begins. On the way to a block it
 * keeps the blocks that it passes for later calls, up to PARKED_MAX_BYTES; the oldest are dropped
 * first. A call for a dropped block sends the stream back to the beginning.
 *
 * Runs on the calling thread, under the input's stream_lock. */
#include "io/data/input/input_state.h"

#include <string.h>

#define PARKED_MAX_BYTES ((size_t)64 * 1024 * 1024)

typedef struct {
    uint64_t block;
    RowText text; /* its bytes are owned */
} Parked;

static void parked_free(Parked *parked)
{
    g_free((char *)(uintptr_t)parked->text.bytes);
    g_free(parked);
}

static void restart(Input *input)
{
    g_clear_pointer(&input->source, byte_source_free);
    input->filled = 0;
    input->base = 0;
    input->next = 0;
    input->at_end = false;
}

static bool fill(Input *input, size_t size, GError **error)
{
    size_t got;

    if (input->source == NULL) {
        input->source = byte_source_open(input->path, error);
        if (input->source == NULL)
            return false;
    }
    if (size <= input->filled || input->at_end)
        return true;
    if (!text_buffer_want(input, &input->stream, size + 1, error) ||
        !byte_source_read(input->source, input->stream.bytes + input->filled, size - input->filled,
                          &got, error))
        return false;
    input->filled += got;
    input->at_end = input->filled < size;
    return true;
}

/* Reads on until the end of the block at the stream's beginning is there; *size is then how many
 * bytes there are up to it. */
static bool fill_block(Input *input, size_t *size, GError **error)
{
    const uint64_t high = MAX((input->next + 1) * input->block_bytes, input->file->first_row);
    uint64_t end;

    for (size_t slack = INPUT_SLACK_BYTES;; slack *= 4) {
        const uint64_t wanted = high > input->base ? high - input->base : 0;

        if (!fill(input, (size_t)wanted + slack, error))
            return false;
        const RowText window = text_buffer_text(&input->stream, input->filled, input->base);
        if (high <= input->base && input->next > 0) {
            end = input->base; /* a row longer than a block: it began in one before */
            break;
        }
        if (input_find_start(input, &window, input->next + 1, input->at_end, &end))
            break;
        if (slack > INPUT_ROW_MAX_BYTES)
            return input_row_too_long(input, input->base, error);
    }
    *size = (size_t)(end - input->base);
    return true;
}

static void drop(Input *input, size_t size)
{
    input->filled -= size;
    memmove(input->stream.bytes, input->stream.bytes + size, input->filled);
    input->base += size;
    input->next++;
    if (input->at_end && input->filled == 0)
        atomic_store_explicit(&input->n_blocks, MAX(input->next, 1), memory_order_relaxed);
}

/* The part of the stream's first bytes that has rows: all but the head. */
static RowText first_block(const Input *input, size_t size)
{
    const uint64_t head =
        MIN(input->base < input->file->first_row ? input->file->first_row - input->base : 0, size);

    return (RowText){ .bytes = input->stream.bytes + head,
                      .size = size - (size_t)head,
                      .offset = input->base + head };
}

static bool copy_text(const Input *input, const RowText *from, TextBuffer *buffer, RowText *text,
                      GError **error)
{
    if (!text_buffer_want(input, buffer, from->size + 1, error))
        return false;
    memcpy(buffer->bytes, from->bytes, from->size);
    *text = text_buffer_text(buffer, from->size, from->offset);
    return true;
}

static bool park(Input *input, size_t size, GError **error)
{
    TextBuffer own = { NULL, 0 };
    const RowText block = first_block(input, size);
    RowText text;

    if (!copy_text(input, &block, &own, &text, error))
        return false;
    Parked *parked = g_new(Parked, 1);
    *parked = (Parked){ input->next, text };
    g_queue_push_tail(&input->parked, parked);
    input->parked_bytes += text.size;
    while (input->parked_bytes > PARKED_MAX_BYTES) {
        Parked *oldest = g_queue_pop_head(&input->parked);

        input->parked_bytes -= oldest->text.size;
        parked_free(oldest);
    }
    return true;
}

static Parked *find_parked(Input *input, uint64_t block)
{
    for (GList *at = input->parked.head; at != NULL; at = at->next) {
        Parked *parked = at->data;

        if (parked->block == block) {
            g_queue_delete_link(&input->parked, at);
            input->parked_bytes -= parked->text.size;
            return parked;
        }
    }
    return NULL;
}

bool input_stream_read(Input *input, uint64_t block, TextBuffer *buffer, RowText *text, bool *there,
                       GError **error)
{
    Parked *parked = find_parked(input, block);
    size_t size = 0;

    *there = true;
    if (parked != NULL) {
        text_buffer_clear(buffer);
        *text = parked->text;
        *buffer = (TextBuffer){ (char *)(uintptr_t)parked->text.bytes, parked->text.size };
        g_free(parked);
        return true;
    }
    if (block < input->next)
        restart(input);
    for (;;) {
        if (block >= atomic_load_explicit(&input->n_blocks, memory_order_relaxed)) {
            *there = false;
            return true;
        }
        if (!fill_block(input, &size, error))
            return false;
        if (input->next == block)
            break;
        if (!park(input, size, error))
            return false;
        drop(input, size);
    }
    const RowText found = first_block(input, size);
    if (!copy_text(input, &found, buffer, text, error))
        return false;
    drop(input, size);
    return true;
}

void input_stream_clear(Input *input)
{
    restart(input);
    text_buffer_clear(&input->stream);
    g_queue_clear_full(&input->parked, (GDestroyNotify)parked_free);
}
