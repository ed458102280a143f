/* Datasets: opening one, the blocks of its inputs, and their summary.
 *
 * A block comes from the input's cache or from the dataset's memory, or it is read and parsed.
 *
 * Runs on the calling threads, many at once. Invariant: n_kept_bytes counts the blocks in `kept`,
 * which stay until the dataset is freed. */
#include "io/data/dataset_state.h"

#include <glib/gstdio.h>
#include <string.h>

#include "io/data/data_keys.h"
#include "io/data/data_spec.h"
#include "io/data/held_out.h"

void block_scratch_init(BlockScratch *scratch)
{
    memset(scratch, 0, sizeof *scratch);
    key_coder_init(&scratch->coder);
}

void block_scratch_clear(BlockScratch *scratch)
{
    text_buffer_clear(&scratch->text);
    row_block_clear(&scratch->rows);
    key_coder_clear(&scratch->coder);
}

/* ---- life ---- */

RubatoDataset *dataset_ref(RubatoDataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->n_refs, 1, memory_order_relaxed);
    return dataset;
}

static void part_clear(Part *part)
{
    g_ptr_array_free(part->kept, TRUE);
    g_byte_array_free(part->counted, TRUE);
    pthread_mutex_destroy(&part->lock);
    cache_file_unref(part->cache);
    input_free(part->input);
}

void rubato_dataset_free(RubatoDataset *dataset)
{
    /* acquire and release pair with one another, so that the last thread sees what all others
     * did */
    if (dataset == NULL || atomic_fetch_sub_explicit(&dataset->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < dataset->n_parts; i++)
        part_clear(&dataset->parts[i]);
    g_free(dataset->parts);
    row_parser_destroy(dataset->parser);
    data_spec_free(dataset->spec);
    g_free(dataset);
}

/* Gives the parser all rows in order, if it wants to learn from them. */
static bool learn(RubatoDataset *dataset, GError **error)
{
    TextBuffer buffer = { NULL, 0 };
    bool ok = true;

    for (uint32_t i = 0; ok && i < dataset->n_parts; i++) {
        Input *input = dataset->parts[i].input;
        bool there = true;

        for (uint64_t block = 0; ok && there; block++) {
            RowFault fault = { .at = NULL };
            RowText text;

            ok = input_read(input, block, &buffer, &text, &there, error);
            if (ok && there &&
                !dataset->parser->ops->learn(dataset->parser, input_row_file(input), &text,
                                             &fault)) {
                input_report(input, &text, &fault, error);
                ok = false;
            }
        }
    }
    text_buffer_clear(&buffer);
    return ok;
}

/* Takes the input and, if there are any, its blocks. */
static Part *add_part(RubatoDataset *dataset, Input *input, GPtrArray *kept)
{
    Part *part = &dataset->parts[dataset->n_parts++];

    part->input = input;
    part->kept =
        kept != NULL ? kept : g_ptr_array_new_with_free_func((GDestroyNotify)data_block_unref);
    part->counted = g_byte_array_new();
    pthread_mutex_init(&part->lock, NULL);
    return part;
}

static bool open_parts(RubatoDataset *dataset, GError **error)
{
    const uint32_t n = g_strv_length((char **)(uintptr_t)dataset->spec->paths);

    dataset->parts = g_new0(Part, n);
    for (uint32_t i = 0; i < n; i++) {
        Input *input = input_open(dataset->spec->paths[i], dataset->parser, error);

        if (input == NULL)
            return false;
        add_part(dataset, input, /* kept= */ NULL);
    }
    return true;
}

/* What the keys mean, and whether this is what the spec asks for. */
static bool describe_keys(RubatoDataset *dataset, const char *path, GError **error)
{
    const RowParserOps *ops = dataset->parser->ops;

    dataset->keys = (RubatoDataKeys){ .format = ops->name, .label_column = RUBATO_NO_COLUMN };
    if (ops->describe_keys != NULL)
        ops->describe_keys(dataset->parser, &dataset->keys);
    return dataset->spec->keys == NULL ||
           data_keys_check_way(dataset->spec->keys, &dataset->keys, path, error);
}

RubatoDataset *rubato_dataset_open(const RubatoDataSpec *spec, GError **error)
{
    g_return_val_if_fail(spec != NULL, NULL);

    g_autoptr(RubatoDataset) dataset = g_new0(RubatoDataset, 1);
    dataset->n_refs = 1;
    dataset->spec = data_spec_copy(spec, error);
    if (dataset->spec == NULL)
        return NULL;
    dataset->bad_rows.max = spec->max_bad_rows;
    /* if the files are not on this node, their names still tell the format */
    const char *name = dataset->spec->paths[0] != NULL ? dataset->spec->paths[0] : spec->paths[0];
    const RowParserOps *ops = row_parser_ops(dataset->spec, name, error);
    if (ops != NULL && dataset->spec->keys != NULL &&
        !data_keys_check_format(dataset->spec->keys, ops->name, name, error))
        return NULL;
    dataset->parser = ops != NULL ? row_parser_create(ops, dataset->spec, error) : NULL;
    if (dataset->parser == NULL || !open_parts(dataset, error) ||
        !describe_keys(dataset, name, error))
        return NULL;

    const RowLearning learns = row_parser_learns(dataset->parser);
    const bool cached = spec->cache == RUBATO_DATA_CACHE_KEEP && dataset_open_caches(dataset);
    dataset->can_parse = learns != ROW_LEARNS_KEYS || !cached;
    if ((learns == ROW_LEARNS_LABELS || (learns == ROW_LEARNS_KEYS && !cached)) &&
        (!learn(dataset, error) || !describe_keys(dataset, name, error)))
        return NULL;
    if (!cached && spec->cache == RUBATO_DATA_CACHE_KEEP && !dataset_make_caches(dataset, error))
        return NULL;
    return g_steal_pointer(&dataset);
}

RubatoDataset *dataset_new_in_memory(RubatoDataSpec *spec, GPtrArray *blocks, uint64_t size,
                                     GError **error)
{
    g_autoptr(RubatoDataset) dataset = g_new0(RubatoDataset, 1);
    g_autoptr(GPtrArray) kept = blocks;
    const char *name = spec->paths[0];

    dataset->n_refs = 1;
    dataset->spec = spec;
    const RowParserOps *ops = row_parser_ops(spec, name, error);
    dataset->parser = ops != NULL ? row_parser_create(ops, spec, error) : NULL;
    if (dataset->parser == NULL)
        return NULL;
    Input *input = input_new_in_memory(name, dataset->parser, size, kept->len);
    dataset->parts = g_new0(Part, 1);
    add_part(dataset, input, g_steal_pointer(&kept))->in_memory = true;
    return describe_keys(dataset, name, error) ? g_steal_pointer(&dataset) : NULL;
}

const RubatoDataKeys *rubato_dataset_keys(const RubatoDataset *dataset)
{
    g_return_val_if_fail(dataset != NULL, NULL);
    return &dataset->keys;
}

uint32_t dataset_n_inputs(const RubatoDataset *dataset)
{
    return dataset->n_parts;
}

Input *dataset_input(const RubatoDataset *dataset, uint32_t input)
{
    return dataset->parts[input].input;
}

uint64_t dataset_n_blocks(const RubatoDataset *dataset, uint32_t input)
{
    const Part *part = &dataset->parts[input];

    return part->cache != NULL ? cache_file_n_blocks(part->cache) : input_n_blocks(part->input);
}

bool dataset_in_any_order(const RubatoDataset *dataset, uint32_t input)
{
    const Part *part = &dataset->parts[input];

    return part->cache != NULL || !input_is_packed(part->input);
}

/* ---- blocks ---- */

/* Keeps a block if there is room and it is not kept yet. */
static void keep_block(RubatoDataset *dataset, Part *part, uint64_t number, DataBlock *block)
{
    const uint64_t bytes = block->image_bytes;

    if (number >= G_MAXUINT / 2)
        return;
    /* relaxed: a budget; a thread that would exceed it takes its own part back */
    if (atomic_fetch_add_explicit(&dataset->n_kept_bytes, bytes, memory_order_relaxed) + bytes <=
        dataset->spec->memory_bytes) {
        bool kept;

        pthread_mutex_lock(&part->lock);
        if (number >= part->kept->len)
            g_ptr_array_set_size(part->kept, (gint)number + 1);
        kept = part->kept->pdata[number] == NULL;
        if (kept)
            part->kept->pdata[number] = data_block_ref(block);
        pthread_mutex_unlock(&part->lock);
        if (kept)
            return;
    }
    atomic_fetch_sub_explicit(&dataset->n_kept_bytes, bytes, memory_order_relaxed);
}

DataBlock *dataset_find_kept(Part *part, uint64_t number)
{
    DataBlock *block = NULL;

    pthread_mutex_lock(&part->lock);
    if (number < part->kept->len && part->kept->pdata[number] != NULL)
        block = data_block_ref(part->kept->pdata[number]);
    pthread_mutex_unlock(&part->lock);
    return block;
}

/* Whether this is the first time that a block is parsed, so that its bad rows count. */
static bool first_time(Part *part, uint64_t number)
{
    bool first;

    if (number >= G_MAXUINT / 2)
        return true;
    pthread_mutex_lock(&part->lock);
    if (number >= part->counted->len) {
        const guint before = part->counted->len;

        g_byte_array_set_size(part->counted, (guint)number + 1);
        memset(part->counted->data + before, 0, part->counted->len - before);
    }
    first = part->counted->data[number] == 0;
    part->counted->data[number] = 1;
    pthread_mutex_unlock(&part->lock);
    return first;
}

bool dataset_parse_block(RubatoDataset *dataset, Part *part, uint64_t number, BlockScratch *scratch,
                         DataBlock **block, bool *again, GError **error)
{
    uint64_t n_bad = 0;
    bool there;
    RowText text;

    *block = NULL;
    if (!input_read(part->input, number, &scratch->text, &text, &there, error))
        return false;
    if (!there)
        return true;
    scratch->rows.has_fields = dataset->parser->ops->has_fields;
    row_block_reset(&scratch->rows);
    *again = !first_time(part, number);
    if (!input_parse(part->input, &text, &scratch->rows, *again ? NULL : &dataset->bad_rows, &n_bad,
                     error))
        return false;
    held_out_filter(dataset->spec, text.offset, 0, &scratch->rows);
    *block = data_block_new(&scratch->rows, n_bad, &scratch->coder);
    if (*block == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "%s: no memory for a block of %zu rows with %zu entries",
                    input_path(part->input), scratch->rows.n_rows, scratch->rows.n_entries);
    return *block != NULL;
}

/* A cache is damaged: it is removed, so that the next dataset makes it anew. */
static bool give_up_cache(RubatoDataset *dataset, const Part *part, GError **error)
{
    const char *path = cache_file_path(part->cache);

    g_unlink(path);
    if (!dataset->can_parse) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: is damaged and was removed; start once more, which makes it anew", path);
        return false;
    }
    /* relaxed: only the first thread logs it */
    if (!atomic_exchange_explicit(&dataset->damage_told, true, memory_order_relaxed))
        g_message("%s: is damaged and was removed; reading %s instead", path,
                  input_path(part->input));
    return true;
}

bool dataset_block(RubatoDataset *dataset, uint32_t input, uint64_t number, DatasetKeep keep,
                   BlockScratch *scratch, DataBlock **block, GError **error)
{
    Part *part = &dataset->parts[input];
    bool again = false;

    *block = NULL;
    if (part->cache != NULL) {
        if (number >= cache_file_n_blocks(part->cache))
            return true;
        *block = cache_file_block(part->cache, number, keep);
        if (*block != NULL)
            return true;
        if (!give_up_cache(dataset, part, error))
            return false;
    }
    *block = dataset_find_kept(part, number);
    if (*block != NULL)
        return true;
    if (!dataset_parse_block(dataset, part, number, scratch, block, &again, error))
        return false;
    /* a block that is read a second time will probably be read again */
    if (*block != NULL && (keep == DATASET_KEEP_BLOCK || again))
        keep_block(dataset, part, number, *block);
    return true;
}

/* ---- what all of them hold ---- */

static bool summarise_blocks(RubatoDataset *dataset, uint32_t input, BlockScratch *scratch,
                             RubatoDataSummary *sum, GError **error)
{
    for (uint64_t number = 0;; number++) {
        g_autoptr(DataBlock) block = NULL;

        if (!dataset_block(dataset, input, number, DATASET_KEEP_BLOCK, scratch, &block, error))
            return false;
        if (block == NULL)
            return true;
        const RubatoDataSummary one = data_block_summary(block);
        data_summary_add(sum, &one);
    }
}

bool rubato_dataset_summary(RubatoDataset *dataset, RubatoDataSummary *summary, GError **error)
{
    RubatoDataSummary sum = { 0 };
    BlockScratch scratch;
    bool ok = true;

    g_return_val_if_fail(dataset != NULL && summary != NULL, false);
    block_scratch_init(&scratch);
    for (uint32_t i = 0; ok && i < dataset->n_parts; i++)
        if (dataset->parts[i].cache != NULL)
            data_summary_add(&sum, cache_file_summary(dataset->parts[i].cache));
        else
            ok = summarise_blocks(dataset, i, &scratch, &sum, error);
    block_scratch_clear(&scratch);
    if (ok)
        *summary = sum;
    return ok;
}
