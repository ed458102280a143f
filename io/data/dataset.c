/* Datasets: opening, the blocks of their inputs, loading one whole.
 *
 * A block is looked for in the memory of the dataset, then in the input's cache, then it is read and
 * parsed. Runs on whichever thread asks, many at once.
 *
 * Invariant: n_kept_bytes counts the blocks in `kept`, which only grow until the dataset goes; a place
 * in `kept` is set once, by compare-and-swap. */
#include "io/data/dataset.h"

#include <stdatomic.h>
#include <string.h>

#include "io/data/data_spec.h"

/* An input and what is kept of it. */
typedef struct {
    Input *input;

    /* by block, n_kept of them: those in memory; NULL where n_blocks was not known */
    _Atomic(DataBlock *) *kept;
    uint64_t n_kept;
    _Atomic bool *counted; /* by block, n_kept: its bad rows are counted */
} Part;

struct RubatoDataset {
    _Atomic uint32_t n_refs;

    /* immutable */
    RubatoDataSpec *spec;
    RowParser *parser;
    Part *parts;
    uint32_t n_parts;

    _Atomic uint64_t n_kept_bytes;
    BadRows bad_rows;
};

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

RubatoDataset *dataset_ref(RubatoDataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->n_refs, 1, memory_order_relaxed);
    return dataset;
}

static void part_clear(Part *part)
{
    for (uint64_t i = 0; i < part->n_kept; i++)
        data_block_unref(atomic_load_explicit(&part->kept[i], memory_order_relaxed));
    g_free(part->kept);
    g_free(part->counted);
    input_free(part->input);
}

void rubato_dataset_free(RubatoDataset *dataset)
{
    /* acquire and release: with one another, so that the last sees what all others did */
    if (dataset == NULL || atomic_fetch_sub_explicit(&dataset->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < dataset->n_parts; i++)
        part_clear(&dataset->parts[i]);
    g_free(dataset->parts);
    row_parser_destroy(dataset->parser);
    data_spec_free(dataset->spec);
    g_free(dataset);
}

/* Gives the parser all rows in order, where it wants to learn from them. */
static bool learn(RubatoDataset *dataset, GError **error)
{
    TextBuffer buffer = { NULL, 0 };
    bool ok = true, there = true;

    for (uint32_t i = 0; ok && i < dataset->n_parts; i++) {
        Input *input = dataset->parts[i].input;

        there = true;
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

static bool open_part(RubatoDataset *dataset, Part *part, const char *path, GError **error)
{
    part->input = input_open(path, dataset->parser, error);
    if (part->input == NULL)
        return false;
    const uint64_t n_blocks = input_n_blocks(part->input);
    if (n_blocks != INPUT_BLOCKS_UNKNOWN && n_blocks > 0) {
        part->kept = g_try_malloc0_n(n_blocks, sizeof *part->kept);
        part->counted = g_try_malloc0_n(n_blocks, sizeof *part->counted);
        if (part->kept == NULL || part->counted == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "%s: no memory for the list of its %" G_GUINT64_FORMAT " blocks", path,
                        n_blocks);
            return false;
        }
        part->n_kept = n_blocks;
    }
    return true;
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
    const RowParserOps *ops = row_parser_ops(dataset->spec, dataset->spec->paths[0], error);
    dataset->parser = ops != NULL ? row_parser_create(ops, dataset->spec, error) : NULL;
    if (dataset->parser == NULL)
        return NULL;

    const uint32_t n = g_strv_length((char **)(uintptr_t)dataset->spec->paths);
    dataset->parts = g_new0(Part, n);
    dataset->n_parts = n;
    for (uint32_t i = 0; i < n; i++)
        if (!open_part(dataset, &dataset->parts[i], dataset->spec->paths[i], error))
            return NULL;
    if (row_parser_learns(dataset->parser) && !learn(dataset, error))
        return NULL;
    return g_steal_pointer(&dataset);
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
    return input_n_blocks(dataset->parts[input].input);
}

/* Keeps a block where there is room and nobody did so before. */
static void keep_block(RubatoDataset *dataset, Part *part, uint64_t number, DataBlock *block)
{
    DataBlock *none = NULL;

    if (number >= part->n_kept)
        return;
    /* relaxed: a budget; whoever would exceed it takes its own part back */
    if (atomic_fetch_add_explicit(&dataset->n_kept_bytes, block->image_bytes,
                                  memory_order_relaxed) +
            block->image_bytes <=
        dataset->spec->memory_bytes) {
        data_block_ref(block);
        /* release: with the acquire in find_kept, which sees the block whole */
        if (atomic_compare_exchange_strong_explicit(&part->kept[number], &none, block,
                                                    memory_order_release, memory_order_relaxed))
            return;
        data_block_unref(block);
    }
    atomic_fetch_sub_explicit(&dataset->n_kept_bytes, block->image_bytes, memory_order_relaxed);
}

static DataBlock *find_kept(Part *part, uint64_t number)
{
    if (number >= part->n_kept)
        return NULL;
    /* acquire: with the release in keep_block */
    DataBlock *block = atomic_load_explicit(&part->kept[number], memory_order_acquire);
    return block != NULL ? data_block_ref(block) : NULL;
}

/* Whether this is the first time that a block is parsed, so that its bad rows count. */
static bool counts(Part *part, uint64_t number)
{
    /* relaxed: nothing but the flag itself is told */
    return number >= part->n_kept ||
           !atomic_exchange_explicit(&part->counted[number], true, memory_order_relaxed);
}

bool dataset_block(RubatoDataset *dataset, uint32_t input, uint64_t number, DatasetKeep keep,
                   BlockScratch *scratch, DataBlock **block, GError **error)
{
    Part *part = &dataset->parts[input];
    uint64_t n_bad = 0;
    bool there;
    RowText text;

    *block = find_kept(part, number);
    if (*block != NULL)
        return true;
    if (!input_read(part->input, number, &scratch->text, &text, &there, error))
        return false;
    if (!there)
        return true;
    scratch->rows.has_fields = dataset->parser->ops->has_fields;
    row_block_reset(&scratch->rows);
    if (!input_parse(part->input, &text, &scratch->rows,
                     counts(part, number) ? &dataset->bad_rows : NULL, &n_bad, error))
        return false;
    *block = data_block_new(&scratch->rows, n_bad, &scratch->coder);
    if (*block == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "%s: no memory for a block of %zu rows with %zu entries",
                    input_path(part->input), scratch->rows.n_rows, scratch->rows.n_entries);
        return false;
    }
    if (keep == DATASET_KEEP)
        keep_block(dataset, part, number, *block);
    return true;
}

/* ---- whole ---- */

static bool load_input(RubatoDataset *dataset, Input *input, RowBlock *rows, TextBuffer *buffer,
                       GError **error)
{
    bool there = true;

    for (uint64_t block = 0; there; block++) {
        uint64_t n_bad = 0;
        RowText text;

        if (!input_read(input, block, buffer, &text, &there, error))
            return false;
        if (there && !input_parse(input, &text, rows, &dataset->bad_rows, &n_bad, error))
            return false;
    }
    return true;
}

static bool give_rows(RowBlock *block, RubatoRows *rows)
{
    /* room for the first row's start, and for arrays that are never NULL */
    if (!row_block_want_rows(block, 1) || !row_block_want_entries(block, 1))
        return false;
    block->row_start[block->n_rows] = block->n_entries;
    rows->n_rows = block->n_rows;
    rows->n_entries = block->n_entries;
    for (size_t i = 0; i < block->n_entries; i++)
        rows->max_key = MAX(rows->max_key, block->key[i]);
    if (block->field != NULL)
        for (size_t i = 0; i < block->n_entries; i++)
            rows->n_fields = MAX(rows->n_fields, MIN(block->field[i], UINT32_MAX - 1) + 1);
    rows->row_start = g_steal_pointer(&block->row_start);
    rows->key = g_steal_pointer(&block->key);
    rows->field = g_steal_pointer(&block->field);
    rows->value = g_steal_pointer(&block->value);
    rows->label = g_steal_pointer(&block->label);
    return true;
}

RubatoRows *rubato_dataset_load(const RubatoDataSpec *spec, GError **error)
{
    g_return_val_if_fail(spec != NULL, NULL);

    RubatoDataSpec plain = *spec;
    plain.cache = RUBATO_DATA_CACHE_NONE;
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&plain, error);
    if (dataset == NULL)
        return NULL;

    TextBuffer buffer = { NULL, 0 };
    g_autoptr(RubatoRows) rows = g_new0(RubatoRows, 1);
    RowBlock block;
    bool ok = true;

    row_block_init(&block, dataset->parser->ops->has_fields);
    for (uint32_t i = 0; ok && i < dataset->n_parts; i++)
        ok = load_input(dataset, dataset->parts[i].input, &block, &buffer, error);
    if (ok && block.n_rows == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: expected a row, found the end of the file", dataset->spec->paths[0]);
        ok = false;
    } else if (ok && !give_rows(&block, rows)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory for its rows",
                    dataset->spec->paths[0]);
        ok = false;
    }
    text_buffer_clear(&buffer);
    row_block_clear(&block);
    return ok ? g_steal_pointer(&rows) : NULL;
}

void rubato_rows_free(RubatoRows *rows)
{
    if (rows == NULL)
        return;
    g_free((void *)(uintptr_t)rows->row_start);
    g_free((void *)(uintptr_t)rows->key);
    g_free((void *)(uintptr_t)rows->field);
    g_free((void *)(uintptr_t)rows->value);
    g_free((void *)(uintptr_t)rows->label);
    g_free(rows);
}

bool rubato_dataset_summary(RubatoDataset *dataset, RubatoDataSummary *summary, GError **error)
{
    RubatoDataSummary sum = { 0 };
    BlockScratch scratch;
    bool ok = true;

    g_return_val_if_fail(dataset != NULL && summary != NULL, false);
    block_scratch_init(&scratch);
    for (uint32_t i = 0; ok && i < dataset->n_parts; i++) {
        bool there = true;

        for (uint64_t number = 0; ok && there; number++) {
            g_autoptr(DataBlock) block = NULL;

            ok = dataset_block(dataset, i, number, DATASET_KEEP, &scratch, &block, error);
            there = block != NULL;
            if (there)
                data_block_summarise(block->head, block->keys, &sum);
        }
    }
    block_scratch_clear(&scratch);
    if (ok)
        *summary = sum;
    return ok;
}
