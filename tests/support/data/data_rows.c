/* Numbered rows: written, recognised, counted. */
#include "tests/support/data/data_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define MOST_ENTRIES 7u

static uint32_t entries_of(uint32_t row)
{
    return row % (MOST_ENTRIES + 1);
}

static RubatoKey key_of(uint32_t row, uint32_t entry)
{
    /* some near each other, some far apart */
    return row % 3 == 0 ? 1 + row % 50 + UINT64_C(1000) * entry
                        : (UINT64_C(0x9e3779b97f4a7c15) * (row % 40 + entry * 977 + 1)) >> 1;
}

static float value_of(uint32_t row, uint32_t entry)
{
    return row % 512 < 256 ? 1.0f : 0.5f + (float)entry;
}

static void add_row(GString *text, uint32_t row)
{
    g_string_append_printf(text, "%u", row);
    for (uint32_t i = 0; i < entries_of(row); i++)
        g_string_append_printf(text, " %u:%" G_GUINT64_FORMAT ":%g", i + row % 2, key_of(row, i),
                               (double)value_of(row, i));
    g_string_append_c(text, '\n');
}

static bool write_gzip(const char *path, const GString *text)
{
    gzFile file = gzopen(path, "wb1");
    const bool written = file != NULL && gzwrite(file, text->str, (unsigned)text->len) > 0;

    return file != NULL && gzclose(file) == Z_OK && written;
}

static bool write_zstd(const char *path, const GString *text)
{
    const size_t bound = ZSTD_compressBound(text->len);
    g_autofree char *packed = g_malloc(bound);
    const size_t size = ZSTD_compress(packed, bound, text->str, text->len, 1);

    return !ZSTD_isError(size) && g_file_set_contents(path, packed, (gssize)size, NULL);
}

char *rows_write(const char *dir, const char *name, RowsPacking packing, uint32_t first, uint32_t n)
{
    g_autoptr(GString) text = g_string_new(NULL);
    char *path = g_build_filename(dir, name, NULL);
    bool written;

    for (uint32_t i = first; i < first + n; i++)
        add_row(text, i);
    if (packing == ROWS_GZIP)
        written = write_gzip(path, text);
    else if (packing == ROWS_ZSTD)
        written = write_zstd(path, text);
    else
        written = g_file_set_contents(path, text->str, (gssize)text->len, NULL);
    if (!written)
        g_error("%s cannot be written", path);
    return path;
}

static bool equal(float a, float b)
{
    return fabsf(a - b) < 1e-6f;
}

static const char *check_row(const RubatoBatch *batch, size_t i, uint32_t row)
{
    const size_t first = batch->row_start[i];

    if (batch->row_start[i + 1] - first != entries_of(row))
        return "a row has lost or found entries";
    for (uint32_t k = 0; k < entries_of(row); k++) {
        if (batch->index[first + k] >= batch->n_keys)
            return "an index is behind the keys";
        if (batch->keys[batch->index[first + k]] != key_of(row, k))
            return "an entry has another key";
        if (batch->field[first + k] != k + row % 2)
            return "an entry has another field";
        if (!equal(batch->value[first + k], value_of(row, k)))
            return "an entry has another value";
    }
    return NULL;
}

/* Each key is used, and they ascend. */
static const char *check_keys(const RubatoBatch *batch)
{
    g_autofree bool *used = g_new0(bool, batch->n_keys + 1);

    for (size_t e = 0; e < batch->n_entries; e++)
        used[MIN(batch->index[e], batch->n_keys)] = true;
    for (size_t k = 0; k < batch->n_keys; k++) {
        if (!used[k])
            return "a key is not used";
        if (k > 0 && batch->keys[k - 1] >= batch->keys[k])
            return "the keys do not ascend";
    }
    return NULL;
}

const char *rows_count(const RubatoBatch *batch, _Atomic uint32_t *counts, uint32_t n_rows)
{
    if (batch->n_rows == 0)
        return "a batch has no rows";
    if (batch->row_start[0] != 0 || batch->row_start[batch->n_rows] != batch->n_entries)
        return "the entries do not begin at 0, or do not end with the last row";
    for (size_t i = 0; i < batch->n_rows; i++) {
        const uint32_t row = (uint32_t)batch->label[i];

        if (row >= n_rows)
            return "a row has a number that there is not";
        const char *fault = check_row(batch, i, row);
        if (fault != NULL)
            return fault;
        atomic_fetch_add(&counts[row], 1);
    }
    return check_keys(batch);
}

bool rows_all_counted(_Atomic uint32_t *counts, uint32_t n_rows, uint32_t times)
{
    for (uint32_t i = 0; i < n_rows; i++)
        if (counts[i] != times) {
            fprintf(stderr, "row %u was read %u times, not %u\n", i, counts[i], times);
            return false;
        }
    return true;
}
