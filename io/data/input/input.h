/* One file of a dataset, cut into blocks at rows.
 *
 * Block k holds the rows that start from byte k × block_bytes on and before byte (k + 1) ×
 * block_bytes of the unpacked text, so every row is in exactly one block. A plain file is read
 * where the block is. A packed file is read from its beginning, by one stream for all callers. If a
 * caller asks for a block that was passed and dropped, the stream goes back to the beginning.
 *
 * Threads: input_read, input_parse from many at once. */
#ifndef RUBATO_IO_DATA_INPUT_INPUT_H
#define RUBATO_IO_DATA_INPUT_INPUT_H

#include <stdatomic.h>

#include "io/data/formats/row_parser.h"

typedef struct Input Input;

/* The number of blocks of a packed file before its end was seen. */
#define INPUT_BLOCKS_UNKNOWN UINT64_MAX

/* A text in memory of its own. */
typedef struct {
    char *bytes;
    size_t capacity; /* and ROW_TEXT_PADDING more */
} TextBuffer;

void text_buffer_clear(TextBuffer *buffer);

/* Rows that could not be read, over all inputs of a dataset. */
typedef struct {
    uint64_t max;
    _Atomic uint64_t n;
} BadRows;

/* Opens a file and reads its head. (transfer full) */
Input *input_open(const char *path, RowParser *parser, GError **error);

/* Rows that are in memory, as so many blocks: there is nothing to read. `name` stands for the path.
 * (transfer full) */
Input *input_new_in_memory(const char *name, RowParser *parser, uint64_t size, uint64_t n_blocks);

/* NULL is allowed. */
void input_free(Input *input);

const char *input_path(const Input *input);
const RowFile *input_row_file(const Input *input);
bool input_is_packed(const Input *input);

/* Of the file, as it was when it was opened. */
uint64_t input_size(const Input *input);
int64_t input_modified_ns(const Input *input);

/* INPUT_BLOCKS_UNKNOWN: a packed file whose end has not been read yet. */
uint64_t input_n_blocks(Input *input);

/* Reads a block's text into the buffer, to which *text then points. *there is false if a packed
 * file ends before it. */
bool input_read(Input *input, uint64_t block, TextBuffer *buffer, RowText *text, bool *there,
                GError **error);

/* Appends a block's rows. Unreadable rows are skipped and counted in *n_bad as long as `bad_rows`
 * has room for them. bad_rows NULL: they are counted, without a limit. */
bool input_parse(Input *input, const RowText *text, RowBlock *rows, BadRows *bad_rows,
                 uint64_t *n_bad, GError **error);

/* Sets *error to a fault in this input, with file, line and column. */
void input_report(Input *input, const RowText *text, const RowFault *fault, GError **error);

/* Where a row is that starts at an offset: "FILE:LINE", or if there are no lines "FILE: byte N".
 * (transfer full) */
char *input_row_place(const Input *input, uint64_t offset);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Input, input_free)

#endif
