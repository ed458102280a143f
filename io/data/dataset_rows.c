/* Datasets of rows in memory: their blocks are made at once, and kept. Runs on the caller's
 * thread. */
#include "io/data/dataset_state.h"

#define BLOCKS_WANTED 64u
#define BLOCK_MOST_ROWS 4096u

static bool refuse(const char *name, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "rows %s: %s", name, why);
    return false;
}

static bool check(const RubatoRows *rows, const char *name, GError **error)
{
    if (rows->n_rows == 0)
        return refuse(name, "there are none", error);
    if (rows->row_start == NULL || rows->label == NULL ||
        (rows->n_entries > 0 && (rows->key == NULL || rows->value == NULL)))
        return refuse(name, "row_start, key, value and label are needed", error);
    for (size_t i = 0; i < rows->n_rows; i++)
        if (rows->row_start[i] > rows->row_start[i + 1])
            return refuse(name, "row_start descends", error);
    if (rows->row_start[0] != 0 || rows->row_start[rows->n_rows] != rows->n_entries)
        return refuse(name, "row_start has to go from 0 to n_entries", error);
    return true;
}

/* The n rows from `first` on. NULL if there is no memory. (transfer full) */
static DataBlock *make_block(const RubatoRows *rows, size_t first, size_t n, KeyCoder *coder)
{
    const size_t entry = rows->row_start[first];
    g_autofree size_t *row_start = g_new(size_t, n + 1);
    RowBlock block = { .n_rows = n,
                       .n_entries = rows->row_start[first + n] - entry,
                       .row_start = row_start,
                       .label = (float *)(uintptr_t)(rows->label + first),
                       .has_fields = rows->field != NULL };

    for (size_t i = 0; i <= n; i++)
        row_start[i] = rows->row_start[first + i] - entry;
    if (rows->n_entries > 0) {
        block.key = (RubatoKey *)(uintptr_t)(rows->key + entry);
        block.value = (float *)(uintptr_t)(rows->value + entry);
    }
    if (block.has_fields)
        block.field = (uint32_t *)(uintptr_t)(rows->field + entry);
    return data_block_new(&block, /* n_bad_rows= */ 0, coder);
}

static bool make_blocks(GPtrArray *blocks, const RubatoRows *rows, const char *name, GError **error)
{
    const size_t n_block = CLAMP(rows->n_rows / BLOCKS_WANTED, 1, BLOCK_MOST_ROWS);
    KeyCoder coder;
    bool ok = true;

    key_coder_init(&coder);
    for (size_t first = 0; ok && first < rows->n_rows; first += n_block) {
        DataBlock *block = make_block(rows, first, MIN(n_block, rows->n_rows - first), &coder);

        ok = block != NULL;
        if (ok)
            g_ptr_array_add(blocks, block);
        else
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "rows %s: no memory for a copy",
                        name);
    }
    key_coder_clear(&coder);
    return ok;
}

RubatoDataset *rubato_dataset_new_from_rows(const RubatoRows *rows, const char *name,
                                            GError **error)
{
    g_return_val_if_fail(rows != NULL && name != NULL, NULL);
    if (!check(rows, name, error))
        return NULL;
    const uint64_t n_bytes =
        rows->n_rows * (sizeof(size_t) + sizeof(float)) +
        rows->n_entries * (sizeof(RubatoKey) + sizeof(float) + sizeof(uint32_t));
    g_autoptr(GPtrArray) blocks = g_ptr_array_new_with_free_func((GDestroyNotify)data_block_unref);

    if (!make_blocks(blocks, rows, name, error))
        return NULL;
    char **const paths = g_new0(char *, 2);
    RubatoDataSpec *const spec = g_new0(RubatoDataSpec, 1);
    paths[0] = g_strdup(name);
    spec->paths = (const char *const *)paths;
    spec->format = g_strdup(rows->field != NULL ? "libffm" : "libsvm");
    return dataset_new_in_memory(spec, g_steal_pointer(&blocks), n_bytes, error);
}
