/* The rows of a table in the memory of a follower.
 *
 * Those of a range lie one after the other. Others lie each for itself, found by an index; a row of
 * one length is taken from blocks of many, and goes back to a list of free ones. A version puts its
 * rows beside those of the table, and swapping exchanges pointers, so that readers wait for a
 * moment alone.
 *
 * Threads: as the header says. */
#include "io/stream/version_rows.h"

#include <rubato/error.h>
#include <string.h>

#include "io/stream/key_index.h"

#define ROOM_BYTES ((size_t)64 << 10)

/* A row for itself. Its values follow. */
typedef struct {
    uint32_t part;
    uint32_t n_values;
} Row;

struct VersionRows {
    VersionShape shape;
    unsigned char *range; /* of a range: its rows; else NULL */

    /* else */
    KeyIndex index;
    KeyIndex wider;   /* the next index, with more room; has no slots if there is none */
    GPtrArray *rooms; /* of rows of one length */
    Row *unused;      /* such a row begins with the address of the next one */
};

/* Some rows of a change. */
typedef struct {
    size_t n;
    RubatoKey first;       /* of a run */
    RubatoKey *keys;       /* NULL: they follow one another from `first` on */
    Row **rows;            /* NULL rows are absent; of a range: NULL */
    unsigned char *values; /* of a range */
} Rows;

struct VersionChange {
    VersionRows *table;
    GPtrArray *rows; /* of Rows */
    uint32_t n_parts;
    bool *is_whole;   /* by part: rows that do not come go */
    KeyCover *covers; /* by part; n_bits 0: none */
    size_t n_bytes;   /* of the keys, and of the rows as they were before */
    bool is_swapped;  /* it has those */
};

static bool fail_memory(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "no memory for the rows of a version");
    return false;
}

/* No memory holds so many rows. */
static bool fail_range(const VersionShape *shape, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%" G_GUINT64_FORMAT " keys of %zu bytes are more than can be", shape->n_keys,
                shape->row_bytes);
    return false;
}

static RubatoKey key_at(const RubatoSnapshotRows *rows, size_t i)
{
    return rows->keys != NULL ? rows->keys[i] : rows->first + i;
}

/* ---- rows for themselves ---- */

static unsigned char *values_of(Row *row)
{
    return (unsigned char *)(row + 1);
}

/* What a row takes of memory. NULL is allowed. */
static size_t bytes_of(const VersionRows *rows, const Row *row)
{
    return row == NULL ? 0 : sizeof *row + row->n_values * rows->shape.value_bytes;
}

static Row *next_unused(const Row *row)
{
    Row *next;

    memcpy(&next, row, sizeof next);
    return next;
}

static void put_unused(VersionRows *rows, Row *row)
{
    memcpy((void *)row, &rows->unused, sizeof rows->unused);
    rows->unused = row;
}

/* Numbers in it are aligned. */
static size_t room_of_row(const VersionRows *rows)
{
    return (sizeof(Row) + rows->shape.row_bytes + 7) / 8 * 8;
}

static bool add_room(VersionRows *rows)
{
    const size_t row_bytes = room_of_row(rows);
    const size_t n = MAX(1, ROOM_BYTES / row_bytes);
    unsigned char *const room = g_try_malloc(n * row_bytes);

    if (room == NULL)
        return false;
    g_ptr_array_add(rows->rooms, room);
    for (size_t i = n; i-- > 0;)
        put_unused(rows, (Row *)(void *)(room + i * row_bytes));
    return true;
}

static Row *take_row(VersionRows *rows, uint32_t part, const void *values, size_t n_bytes)
{
    Row *row;

    if (rows->shape.row_bytes == 0) {
        row = g_try_malloc(sizeof *row + n_bytes);
    } else {
        row = rows->unused != NULL || add_room(rows) ? rows->unused : NULL;
        if (row != NULL)
            rows->unused = next_unused(row);
    }
    if (row == NULL)
        return NULL;
    *row = (Row){ .part = part, .n_values = (uint32_t)(n_bytes / rows->shape.value_bytes) };
    if (n_bytes > 0)
        memcpy(values_of(row), values, n_bytes);
    return row;
}

static void give_back(VersionRows *rows, Row *row)
{
    if (row == NULL)
        return;
    if (rows->shape.row_bytes == 0)
        g_free(row);
    else
        put_unused(rows, row);
}

/* ---- a table ---- */

static bool make_range(VersionRows *rows, GError **error)
{
    size_t n_bytes;

    if (!g_size_checked_mul(&n_bytes, rows->shape.n_keys, rows->shape.row_bytes))
        return fail_range(&rows->shape, error);
    rows->range = g_try_malloc0(MAX(1, n_bytes));
    return rows->range != NULL || fail_memory(error);
}

VersionRows *version_rows_new(const VersionShape *shape, GError **error)
{
    g_autoptr(VersionRows) rows = g_new0(VersionRows, 1);

    rows->shape = *shape;
    rows->rooms = g_ptr_array_new_with_free_func(g_free);
    if (!shape->is_range)
        rows->index = key_index_make();
    else if (!make_range(rows, error))
        return NULL;
    return g_steal_pointer(&rows);
}

void version_rows_free(VersionRows *rows)
{
    if (rows == NULL)
        return;
    for (uint64_t i = 0; i < rows->index.n_slots && rows->shape.row_bytes == 0; i++)
        g_free(rows->index.rows[i]);
    key_index_clear(&rows->index);
    key_index_clear(&rows->wider);
    g_ptr_array_unref(rows->rooms);
    g_free(rows->range);
    g_free(rows);
}

uint64_t version_rows_n(const VersionRows *rows)
{
    return rows->shape.is_range ? rows->shape.n_keys : rows->index.n;
}

/* The row of a key of a range. */
static unsigned char *find_in_range(const VersionRows *rows, RubatoKey key)
{
    return rows->range + (key - rows->shape.first) * rows->shape.row_bytes;
}

const void *version_rows_find(const VersionRows *rows, RubatoKey key, uint32_t *n_values)
{
    Row *row;

    if (rows->shape.is_range) {
        *n_values = (uint32_t)(rows->shape.row_bytes / rows->shape.value_bytes);
        return key - rows->shape.first < rows->shape.n_keys ? find_in_range(rows, key) : NULL;
    }
    row = key_index_find(&rows->index, key);
    *n_values = row != NULL ? row->n_values : 0;
    return row != NULL ? values_of(row) : NULL;
}

/* Whether all keys are of the table's range. */
static bool check_keys(const VersionRows *rows, const RubatoSnapshotRows *put, GError **error)
{
    for (size_t i = 0; i < put->n && rows->shape.is_range; i++) {
        const RubatoKey key = key_at(put, i);

        if (key - rows->shape.first < rows->shape.n_keys)
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "key %" G_GUINT64_FORMAT " is not one of the table's range", key);
        return false;
    }
    return true;
}

static size_t bytes_at(const VersionRows *rows, const RubatoSnapshotRows *put, size_t i)
{
    return put->lengths != NULL ? put->lengths[i] * rows->shape.value_bytes : rows->shape.row_bytes;
}

/* Rows for themselves, of the bytes that were put. False: there is no memory. */
static bool take_rows(VersionRows *rows, uint32_t part, const RubatoSnapshotRows *put, Row **taken)
{
    const unsigned char *values = put->values;

    for (size_t i = 0; i < put->n; i++) {
        const size_t n_bytes = bytes_at(rows, put, i);

        taken[i] = take_row(rows, part, values, n_bytes);
        if (taken[i] == NULL) {
            while (i-- > 0)
                give_back(rows, taken[i]);
            return false;
        }
        values += n_bytes;
    }
    return true;
}

/* Room for so many keys more, twice as many as there are at least. */
static bool widen(VersionRows *rows, uint64_t n_more)
{
    KeyIndex wider;

    if (key_index_has_room(&rows->index, rows->index.n + n_more))
        return true;
    if (!key_index_copy(&rows->index, rows->index.n + n_more, &wider))
        return false;
    key_index_clear(&rows->index);
    rows->index = wider;
    return true;
}

bool version_rows_put(VersionRows *rows, uint32_t part, const RubatoSnapshotRows *put,
                      GError **error)
{
    g_autofree Row **taken = NULL;

    if (!check_keys(rows, put, error))
        return false;
    if (rows->shape.is_range) {
        const unsigned char *const values = put->values;

        for (size_t i = 0; i < put->n; i++)
            memcpy(find_in_range(rows, key_at(put, i)), values + i * rows->shape.row_bytes,
                   rows->shape.row_bytes);
        return true;
    }
    taken = g_try_new(Row *, MAX(1, put->n));
    if (taken == NULL || !widen(rows, put->n) || !take_rows(rows, part, put, taken))
        return fail_memory(error);
    for (size_t i = 0; i < put->n; i++)
        give_back(rows, key_index_exchange(&rows->index, key_at(put, i), taken[i]));
    return true;
}

/* ---- a change ---- */

static void free_rows(VersionRows *table, Rows *rows)
{
    for (size_t i = 0; i < rows->n && rows->rows != NULL; i++)
        give_back(table, rows->rows[i]);
    g_free(rows->keys);
    g_free(rows->rows);
    g_free(rows->values);
    g_free(rows);
}

VersionChange *version_change_new(VersionRows *rows, uint32_t n_parts)
{
    VersionChange *const change = g_new0(VersionChange, 1);

    change->table = rows;
    change->rows = g_ptr_array_new();
    change->n_parts = n_parts;
    change->is_whole = g_new0(bool, n_parts);
    change->covers = g_new0(KeyCover, n_parts);
    return change;
}

static void clear_covers(VersionChange *change)
{
    for (uint32_t i = 0; i < change->n_parts && change->covers != NULL; i++)
        key_cover_clear(&change->covers[i]);
    g_clear_pointer(&change->covers, g_free);
    g_clear_pointer(&change->is_whole, g_free);
}

void version_change_free(VersionChange *change)
{
    if (change == NULL)
        return;
    for (guint i = 0; i < change->rows->len; i++)
        free_rows(change->table, change->rows->pdata[i]);
    g_ptr_array_unref(change->rows);
    clear_covers(change);
    g_free(change);
}

/* Copies the keys unless they follow one another. */
static bool copy_keys(const RubatoSnapshotRows *put, Rows *rows)
{
    rows->n = put->n;
    rows->first = put->first;
    if (put->keys == NULL)
        return true;
    rows->keys = g_try_new(RubatoKey, put->n);
    if (rows->keys != NULL)
        memcpy(rows->keys, put->keys, put->n * sizeof *put->keys);
    return rows->keys != NULL;
}

static bool copy_values(VersionChange *change, uint32_t part, const RubatoSnapshotRows *put,
                        Rows *rows)
{
    const size_t n_bytes = put->n * change->table->shape.row_bytes;
    g_autofree Row **taken = NULL;

    if (change->table->shape.is_range) {
        rows->values = g_try_malloc(MAX(1, n_bytes));
        if (rows->values != NULL && n_bytes > 0)
            memcpy(rows->values, put->values, n_bytes);
        return rows->values != NULL;
    }
    taken = g_try_new(Row *, put->n);
    if (taken == NULL || !take_rows(change->table, part, put, taken))
        return false;
    rows->rows = g_steal_pointer(&taken);
    return true;
}

bool version_change_put(VersionChange *change, uint32_t part, const RubatoSnapshotRows *put,
                        GError **error)
{
    Rows *rows;

    if (!check_keys(change->table, put, error))
        return false;
    if (put->n == 0)
        return true;
    rows = g_new0(Rows, 1);
    if (!copy_keys(put, rows) || !copy_values(change, part, put, rows)) {
        free_rows(change->table, rows);
        return fail_memory(error);
    }
    g_ptr_array_add(change->rows, rows);
    change->n_bytes +=
        put->n * (sizeof(RubatoKey) +
                  (change->table->shape.is_range ? change->table->shape.row_bytes : sizeof(Row *)));
    return true;
}

void version_change_cover(VersionChange *change, uint32_t part, KeyCover *cover)
{
    if (cover == NULL)
        change->is_whole[part] = true;
    else
        change->covers[part] = *cover;
}

/* ---- which rows go ---- */

static RubatoKey key_of(const Rows *rows, size_t i)
{
    return rows->keys != NULL ? rows->keys[i] : rows->first + i;
}

/* How many rows come that the table does not have. Counts the bytes of those that it has. */
static uint64_t count_new(VersionChange *change)
{
    uint64_t n = 0;

    for (guint i = 0; i < change->rows->len; i++) {
        const Rows *const rows = change->rows->pdata[i];

        for (size_t j = 0; j < rows->n; j++) {
            const Row *const row = key_index_find(&change->table->index, key_of(rows, j));

            n += row == NULL;
            change->n_bytes += bytes_of(change->table, row);
        }
    }
    return n;
}

/* The keys of all rows that come. */
static bool index_coming(const VersionChange *change, KeyIndex *coming)
{
    const KeyIndex none = key_index_make();
    uint64_t n = 0;

    for (guint i = 0; i < change->rows->len; i++)
        n += ((const Rows *)change->rows->pdata[i])->n;
    if (!key_index_copy(&none, n, coming))
        return false;
    for (guint i = 0; i < change->rows->len; i++) {
        const Rows *const rows = change->rows->pdata[i];

        for (size_t j = 0; j < rows->n; j++)
            (void)key_index_exchange(coming, key_of(rows, j), rows->rows[j]);
    }
    return true;
}

static bool goes(const VersionChange *change, const KeyIndex *coming, RubatoKey key, const Row *row)
{
    return row->part < change->n_parts &&
           (change->is_whole[row->part] || key_cover_has(&change->covers[row->part], key)) &&
           key_index_find(coming, key) == NULL;
}

/* Finds those that go, of which there are n: each is looked at. */
static bool add_going(VersionChange *change, uint64_t n, bool *is_right)
{
    const KeyIndex *const index = &change->table->index;
    Rows *const going = g_new0(Rows, 1);
    uint64_t n_found = 0;
    KeyIndex coming;

    g_ptr_array_add(change->rows, going);
    going->keys = g_try_new(RubatoKey, n);
    going->rows = g_try_new0(Row *, n);
    change->n_bytes += n * (sizeof *going->keys + sizeof *going->rows);
    if (going->keys == NULL || going->rows == NULL || !index_coming(change, &coming))
        return false;
    for (uint64_t i = 0; i < index->n_slots; i++)
        if (index->rows[i] != NULL && goes(change, &coming, index->keys[i], index->rows[i])) {
            if (n_found < n)
                going->keys[n_found] = index->keys[i];
            n_found++;
            change->n_bytes += bytes_of(change->table, index->rows[i]);
        }
    key_index_clear(&coming);
    going->n = (size_t)MIN(n_found, n);
    *is_right = n_found == n;
    return true;
}

static bool fail_count(uint64_t has, uint64_t n_rows, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "with the version before it has %" G_GUINT64_FORMAT " rows of %" G_GUINT64_FORMAT,
                has, n_rows);
    return false;
}

/* The rows of a table can only be more than with the change if some go. If they are as many, none
 * goes: all of them are there. So a version without rows that go does not look at each row. */
bool version_change_finish(VersionChange *change, uint64_t n_rows, GError **error)
{
    VersionRows *const table = change->table;
    bool is_right = true;
    uint64_t n_with;

    if (table->shape.is_range) {
        clear_covers(change);
        return n_rows == table->shape.n_keys || fail_count(table->shape.n_keys, n_rows, error);
    }
    n_with = table->index.n + count_new(change);
    if (n_with < n_rows)
        return fail_count(n_with, n_rows, error);
    if (n_with > n_rows && !add_going(change, n_with - n_rows, &is_right))
        return fail_memory(error);
    clear_covers(change);
    if (!is_right)
        return fail_count(n_with, n_rows, error);
    key_index_clear(&table->wider);
    if (!key_index_has_room(&table->index, n_with) &&
        !key_index_copy(&table->index, n_with, &table->wider))
        return fail_memory(error);
    return true;
}

/* ---- swapping ---- */

static void swap_bytes(unsigned char *a, unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = a[i];

        a[i] = b[i];
        b[i] = byte;
    }
}

static void swap_rows(VersionRows *table, Rows *rows, bool is_back)
{
    const size_t row_bytes = table->shape.row_bytes;

    for (size_t at = 0; at < rows->n; at++) {
        const size_t i = is_back ? rows->n - 1 - at : at;
        const RubatoKey key = key_of(rows, i);

        if (table->shape.is_range)
            swap_bytes(find_in_range(table, key), rows->values + i * row_bytes, row_bytes);
        else
            rows->rows[i] = key_index_exchange(&table->index, key, rows->rows[i]);
    }
}

/* Back it goes in the other order: a key that came twice then gets what it had first. */
void version_change_swap(VersionChange *change)
{
    VersionRows *const table = change->table;
    const guint n = change->rows->len;

    if (table->wider.n_slots > 0) {
        key_index_clear(&table->index);
        table->index = table->wider;
        table->wider = (KeyIndex){ .n_slots = 0 };
    }
    for (guint i = 0; i < n; i++)
        swap_rows(table, change->rows->pdata[change->is_swapped ? n - 1 - i : i],
                  change->is_swapped);
    change->is_swapped = !change->is_swapped;
}

size_t version_change_bytes(const VersionChange *change)
{
    return change->n_bytes;
}
