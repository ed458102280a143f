/* A block of an input, parsed: its rows, with keys numbered within the block.
 *
 * A block is one piece of memory, its image, which is also how a cache file holds it: a header,
 * then the arrays. Blocks are shared, and do not change once they are made.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_DATA_BLOCK_H
#define RUBATO_IO_DATA_DATA_BLOCK_H

#include <rubato/data.h>

#include "io/data/deal/key_coder.h"
#include "io/data/formats/row_block.h"

/* The head of an image, in the machine's byte order. Behind it, without gaps: keys, row_start,
 * label, index, field (where has_fields), value (where has_values). */
typedef struct {
    uint64_t n_rows, n_entries, n_keys;
    uint64_t n_bad_rows; /* skipped when it was parsed */
    float min_label, max_label;
    uint32_t n_fields; /* one more than the largest */
    uint8_t has_fields, has_values, reserved[2];
} BlockHead;

typedef struct DataBlock DataBlock;
struct DataBlock {
    const BlockHead *head;
    size_t image_bytes;
    const RubatoKey *keys;     /* n_keys, ascending */
    const uint32_t *row_start; /* n_rows + 1 */
    const float *label;        /* n_rows */
    const uint32_t *index;     /* n_entries: the key of an entry is keys[index[e]] */
    const uint32_t *field;     /* n_entries, or NULL */
    const float *value;        /* n_entries, or NULL: all are 1 */

    _Atomic uint32_t n_refs;
    void *owner; /* of the image */
    void (*release)(void *owner);
};

/* From rows as a parser leaves them; NULL if there is no memory. (transfer full) */
DataBlock *data_block_new(const RowBlock *rows, uint64_t n_bad_rows, KeyCoder *coder);

/* Whether an image has been found sound before. */
typedef enum {
    IMAGE_NEW,
    IMAGE_CHECKED,
} ImageState;

/* Makes a block around an image from a file; `release` is called with owner to give the image back.
 * NULL if the image is not whole and sound; release is then not called. The image is aligned to
 * 8 bytes. (transfer full) */
DataBlock *data_block_new_image(const void *image, size_t size, ImageState state, void *owner,
                                void (*release)(void *owner));

/* Whether blocks are kept in memory for later calls. A block that is asked for a second time is
 * kept in any case. */
typedef enum {
    DATASET_KEEP_NOTHING,
    DATASET_KEEP_BLOCK,
} DatasetKeep;

DataBlock *data_block_ref(DataBlock *block);

/* NULL is allowed. */
void data_block_unref(DataBlock *block);

RubatoDataSummary data_block_summary(const DataBlock *block);

/* Adds one to the other, which starts with zeros. */
void data_summary_add(RubatoDataSummary *sum, const RubatoDataSummary *summary);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(DataBlock, data_block_unref)

#endif
