/* What differs between two snapshots. A row is compared by a hash of 64 bits of its values and its
 * state, so each row of the two tables takes 16 bytes of memory. */
#include <stdlib.h>
#include <string.h>

#include "apps/rubato/checkpoint/checkpoint.h"

typedef struct {
    RubatoKey key;
    uint64_t hash;
} RowHash;

typedef struct {
    RowHash *rows;
    size_t n, n_allocated;
    size_t row_bytes, state_bytes, value_bytes;
} TableHashes;

static uint64_t hash_bytes(uint64_t hash, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = 0;

        memcpy(&word, bytes + i, MIN(n - i, sizeof word));
        hash = rubato_mix64((hash ^ word) + UINT64_C(0x9e3779b97f4a7c15));
    }
    return hash;
}

static bool take_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    TableHashes *hashes = user_data;
    const unsigned char *values = rows->values, *states = rows->states;

    for (size_t i = 0; i < rows->n; i++) {
        const size_t n_bytes =
            rows->lengths != NULL ? rows->lengths[i] * hashes->value_bytes : hashes->row_bytes;
        RowHash *row = &hashes->rows[hashes->n];

        if (hashes->n++ == hashes->n_allocated) {
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                                "there are more rows than the manifest says");
            return false;
        }
        row->key = rows->keys != NULL ? rows->keys[i] : rows->first + i;
        row->hash = hash_bytes(n_bytes, values, n_bytes);
        values += n_bytes;
        if (states != NULL)
            row->hash =
                hash_bytes(row->hash, states + i * hashes->state_bytes, hashes->state_bytes);
    }
    return true;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = ((const RowHash *)a)->key, right = ((const RowHash *)b)->key;

    return (left > right) - (left < right);
}

static bool hash_table(const RubatoSnapshot *snapshot, const RubatoSnapshotTable *table,
                       TableHashes *hashes, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(table->dtype);

    *hashes = (TableHashes){ .n_allocated = (size_t)table->n_rows,
                             .row_bytes = table->width * value_bytes,
                             .state_bytes = table->state_width * value_bytes,
                             .value_bytes = value_bytes };
    hashes->rows = g_try_new(RowHash, hashes->n_allocated + 1);
    if (hashes->rows == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory to compare %" G_GUINT64_FORMAT " rows of table %s", table->n_rows,
                    table->name);
        return false;
    }
    for (uint32_t part = 0; part < table->n_parts; part++)
        if (!rubato_snapshot_read_part(snapshot, table->name, part, take_rows, hashes, error))
            return false;
    qsort(hashes->rows, hashes->n, sizeof *hashes->rows, compare_keys);
    return true;
}

/* Counts and prints what differs. Both are sorted. */
static bool print_difference(const char *name, const TableHashes *left, const TableHashes *right)
{
    uint64_t n_removed = 0, n_added = 0, n_changed = 0;
    size_t i = 0, j = 0;

    while (i < left->n || j < right->n) {
        const bool in_left =
            i < left->n && (j == right->n || left->rows[i].key <= right->rows[j].key);
        const bool in_right =
            j < right->n && (i == left->n || right->rows[j].key <= left->rows[i].key);

        n_removed += in_left && !in_right;
        n_added += in_right && !in_left;
        n_changed += in_left && in_right && left->rows[i].hash != right->rows[j].hash;
        i += in_left;
        j += in_right;
    }
    if (n_removed + n_added + n_changed == 0) {
        g_print("%s: the same %zu rows\n", name, left->n);
        return true;
    }
    g_print("%s: of %zu rows %" G_GUINT64_FORMAT " changed, %" G_GUINT64_FORMAT
            " went, %" G_GUINT64_FORMAT " came\n",
            name, left->n, n_changed, n_removed, n_added);
    return false;
}

static bool diff_table(const RubatoSnapshot *left, const RubatoSnapshot *right,
                       const RubatoSnapshotTable *was, const RubatoSnapshotTable *is, bool *same,
                       GError **error)
{
    TableHashes old = { .rows = NULL }, new = { .rows = NULL };
    bool ok;

    if (was->dtype != is->dtype || was->shape != is->shape || was->width != is->width ||
        was->state_width != is->state_width) {
        g_print("%s: has another shape\n", was->name);
        *same = false;
        return true;
    }
    ok = hash_table(left, was, &old, error) && hash_table(right, is, &new, error);
    if (ok && !print_difference(was->name, &old, &new))
        *same = false;
    g_free(old.rows);
    g_free(new.rows);
    return ok;
}

bool checkpoint_diff(const RubatoSnapshot *left, const RubatoSnapshot *right, bool *same,
                     GError **error)
{
    *same = true;
    for (size_t i = 0; i < rubato_snapshot_n_tables(left); i++) {
        const RubatoSnapshotTable *was = rubato_snapshot_table(left, i);
        const RubatoSnapshotTable *is = rubato_snapshot_find_table(right, was->name);

        if (is == NULL) {
            g_print("%s: is in snapshot %" G_GUINT64_FORMAT " alone\n", was->name,
                    rubato_snapshot_number(left));
            *same = false;
        } else if (!diff_table(left, right, was, is, same, error)) {
            return false;
        }
    }
    for (size_t i = 0; i < rubato_snapshot_n_tables(right); i++) {
        const char *name = rubato_snapshot_table(right, i)->name;

        if (rubato_snapshot_find_table(left, name) != NULL)
            continue;
        g_print("%s: is in snapshot %" G_GUINT64_FORMAT " alone\n", name,
                rubato_snapshot_number(right));
        *same = false;
    }
    return true;
}
