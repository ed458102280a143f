/* Blocks: laid out in one piece of memory, checked when they come from a file.
 *
 * Runs on any thread. Only the reference count changes. The thread that takes it to zero frees the
 * block, and sees what others did before they released their references (release and acquire on
 * n_refs). */
#include "io/data/data_block.h"

#include <stdatomic.h>
#include <string.h>

/* The bytes of an image with this head; 0 if no image can be that large. */
static size_t image_size(const BlockHead *head)
{
    const uint64_t max = UINT32_MAX;

    if (head->n_rows >= max || head->n_entries >= max || head->n_keys > head->n_entries)
        return 0;
    const size_t arrays = 1u + (head->has_fields != 0) + (head->has_values != 0);
    return sizeof *head + head->n_keys * sizeof(RubatoKey) + (head->n_rows + 1) * sizeof(uint32_t) +
           head->n_rows * sizeof(float) + arrays * head->n_entries * sizeof(uint32_t);
}

/* Points a block's arrays into its image, which is whole. */
static void lay_out(DataBlock *block, const void *image, size_t size)
{
    const BlockHead *head = image;

    block->head = head;
    block->image_bytes = size;
    block->keys = (const RubatoKey *)(head + 1);
    block->row_start = (const uint32_t *)(block->keys + head->n_keys);
    block->label = (const float *)(block->row_start + head->n_rows + 1);
    block->index = (const uint32_t *)(block->label + head->n_rows);

    const uint32_t *next = block->index + head->n_entries;
    block->field = head->has_fields ? next : NULL;
    if (head->has_fields)
        next += head->n_entries;
    block->value = head->has_values ? (const float *)next : NULL;
}

static bool all_ones(const float *value, size_t n)
{
    const float one = 1;
    uint32_t one_bits, different = 0;

    memcpy(&one_bits, &one, sizeof one_bits);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &value[i], sizeof bits);
        different |= bits ^ one_bits;
    }
    return different == 0;
}

static BlockHead head_of(const RowBlock *rows, uint64_t n_bad_rows, size_t n_keys)
{
    BlockHead head = {
        .n_rows = rows->n_rows,
        .n_entries = rows->n_entries,
        .n_keys = n_keys,
        .n_bad_rows = n_bad_rows,
        .has_fields = rows->has_fields,
        .has_values = !all_ones(rows->value, rows->n_entries),
    };
    uint32_t max_field = 0;

    for (size_t i = 0; i < rows->n_rows; i++) {
        head.min_label = i == 0 ? rows->label[i] : MIN(head.min_label, rows->label[i]);
        head.max_label = i == 0 ? rows->label[i] : MAX(head.max_label, rows->label[i]);
    }
    for (size_t i = 0; rows->has_fields && i < rows->n_entries; i++)
        max_field = MAX(max_field, rows->field[i]);
    head.n_fields =
        rows->has_fields && rows->n_entries > 0 ? MIN(max_field, UINT32_MAX - 1) + 1 : 0;
    return head;
}

static void copy(const void *to, const void *from, size_t n, size_t size)
{
    if (n > 0)
        memcpy((void *)(uintptr_t)to, from, n * size);
}

DataBlock *data_block_new(const RowBlock *rows, uint64_t n_bad_rows, KeyCoder *coder)
{
    g_autofree uint32_t *index = g_try_new(uint32_t, MAX(rows->n_entries, 1));

    if (index == NULL || rows->n_entries >= UINT32_MAX || rows->n_rows >= UINT32_MAX ||
        !key_coder_code(coder, rows->key, rows->n_entries, index))
        return NULL;

    const BlockHead head = head_of(rows, n_bad_rows, coder->n_keys);
    const size_t size = image_size(&head);
    BlockHead *image = g_try_malloc(size);
    if (image == NULL)
        return NULL;
    *image = head;

    DataBlock *block = g_new0(DataBlock, 1);
    block->n_refs = 1;
    block->owner = image;
    block->release = g_free;
    lay_out(block, image, size);
    copy(block->keys, coder->keys, coder->n_keys, sizeof *coder->keys);
    uint32_t *row_start = (uint32_t *)(uintptr_t)block->row_start;
    row_start[0] = 0;
    for (size_t i = 0; i < rows->n_rows; i++)
        row_start[i + 1] = (uint32_t)rows->row_start[i + 1];
    copy(block->label, rows->label, rows->n_rows, sizeof *rows->label);
    copy(block->index, index, rows->n_entries, sizeof *index);
    if (block->field != NULL)
        copy(block->field, rows->field, rows->n_entries, sizeof *rows->field);
    if (block->value != NULL)
        copy(block->value, rows->value, rows->n_entries, sizeof *rows->value);
    return block;
}

/* Whether the arrays agree with one another, so that no reader leaves them. */
static bool is_sound(const DataBlock *block)
{
    const BlockHead *head = block->head;
    uint32_t max_index = 0;

    if (block->row_start[0] != 0 || block->row_start[head->n_rows] != head->n_entries)
        return false;
    for (size_t i = 0; i < head->n_rows; i++)
        if (block->row_start[i] > block->row_start[i + 1])
            return false;
    for (size_t i = 1; i < head->n_keys; i++)
        if (block->keys[i - 1] >= block->keys[i])
            return false;
    for (size_t i = 0; i < head->n_entries; i++)
        max_index = MAX(max_index, block->index[i]);
    return head->n_entries == 0 || max_index < head->n_keys;
}

DataBlock *data_block_new_image(const void *image, size_t size, ImageState state, void *owner,
                                void (*release)(void *owner))
{
    if (size < sizeof(BlockHead) || image_size(image) == 0 || image_size(image) > size)
        return NULL;

    DataBlock *block = g_new0(DataBlock, 1);
    lay_out(block, image, image_size(image));
    if (state == IMAGE_NEW && !is_sound(block)) {
        g_free(block);
        return NULL;
    }
    block->n_refs = 1;
    block->owner = owner;
    block->release = release;
    return block;
}

DataBlock *data_block_ref(DataBlock *block)
{
    atomic_fetch_add_explicit(&block->n_refs, 1, memory_order_relaxed);
    return block;
}

void data_block_unref(DataBlock *block)
{
    if (block == NULL || atomic_fetch_sub_explicit(&block->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    block->release(block->owner);
    g_free(block);
}

RubatoDataSummary data_block_summary(const DataBlock *block)
{
    const BlockHead *head = block->head;

    return (RubatoDataSummary){
        .n_rows = head->n_rows,
        .n_entries = head->n_entries,
        .n_bad_rows = head->n_bad_rows,
        .max_key = head->n_keys > 0 ? block->keys[head->n_keys - 1] : 0,
        .n_fields = head->n_fields,
        .min_label = head->min_label,
        .max_label = head->max_label,
    };
}

void data_summary_add(RubatoDataSummary *sum, const RubatoDataSummary *summary)
{
    if (summary->n_rows > 0) {
        const bool first = sum->n_rows == 0;

        sum->min_label = first ? summary->min_label : MIN(sum->min_label, summary->min_label);
        sum->max_label = first ? summary->max_label : MAX(sum->max_label, summary->max_label);
    }
    sum->n_rows += summary->n_rows;
    sum->n_entries += summary->n_entries;
    sum->n_bad_rows += summary->n_bad_rows;
    sum->max_key = MAX(sum->max_key, summary->max_key);
    sum->n_fields = MAX(sum->n_fields, summary->n_fields);
}
