/* What the files of an input share; nobody else includes this.
 *
 *   input.c          opening one, where blocks begin, plain files, rows
 *   input_stream.c   packed files
 *   input_fault.c    what is said of a row that cannot be read
 *
 * Threads: as input.h. */
#ifndef RUBATO_IO_DATA_INPUT_INPUT_STATE_H
#define RUBATO_IO_DATA_INPUT_INPUT_STATE_H

#include <pthread.h>

#include "io/data/input/byte_source.h"
#include "io/data/input/input.h"

#define INPUT_SLACK_BYTES \
    ((size_t)64 * 1024) /* text read beyond a block at first, to find its end */
#define INPUT_ROW_MAX_BYTES ((size_t)1 << 30)

struct Input {
    /* immutable */
    char *path;
    RowParser *parser;
    RowFile *file;
    int fd; /* plain only */
    bool packed;
    uint64_t size;
    int64_t modified_ns;
    uint64_t block_bytes;

    _Atomic uint64_t n_blocks;

    pthread_mutex_t stream_lock;
    /* guarded by stream_lock */
    ByteSource *source; /* NULL: at the beginning */
    TextBuffer stream;
    size_t filled;
    uint64_t base; /* offset of the stream's first byte */
    uint64_t next; /* the block that begins there */
    bool at_end;   /* the source has no more */
    GQueue parked; /* of Parked, oldest first */
    size_t parked_bytes;
};

/* Makes room for a text and its padding. */
bool text_buffer_want(const Input *input, TextBuffer *buffer, size_t size, GError **error);

/* The text of so many bytes, padded. */
RowText text_buffer_text(TextBuffer *buffer, size_t size, uint64_t offset);

bool input_row_too_long(const Input *input, uint64_t offset, GError **error);

/* Finds where block `block` begins in a window of the text. The window begins at least one byte
 * before the place where the search begins. False: not in this window. */
bool input_find_start(const Input *input, const RowText *window, uint64_t block, bool to_the_end,
                      uint64_t *start);

/* input_read of a packed file; the lock is held. */
bool input_stream_read(Input *input, uint64_t block, TextBuffer *buffer, RowText *text, bool *there,
                       GError **error);
void input_stream_clear(Input *input);

#endif
