/* Rows that are set aside to measure on.
 *
 * A hash decides for each row. It is made of the row's place and of what is in it: so every process
 * that reads a file sets the same rows aside, equal rows are divided as all others are, and so are
 * many files of one row. Pure functions. */
#include "io/data/held_out.h"

#include <rubato/mix.h>
#include <string.h>

static uint64_t hash_row(const RowBlock *rows, size_t row, uint64_t place)
{
    uint64_t hash = rubato_mix64(place);
    uint32_t bits;

    memcpy(&bits, &rows->label[row], sizeof bits);
    hash = rubato_mix64(hash ^ bits);
    for (size_t e = rows->row_start[row]; e < rows->row_start[row + 1]; e++) {
        memcpy(&bits, &rows->value[e], sizeof bits);
        hash = rubato_mix64(hash ^ rows->key[e]) + bits;
    }
    return rubato_mix64(hash);
}

static bool is_held_out(double fraction, uint64_t hash)
{
    return (double)(hash >> 11) * 0x1p-53 < fraction;
}

static void move_row(RowBlock *rows, size_t from, size_t to)
{
    const size_t entry = rows->row_start[from], target = rows->row_start[to];
    const size_t n = rows->row_start[from + 1] - entry;

    rows->label[to] = rows->label[from];
    rows->row_start[to + 1] = target + n;
    if (n == 0 || entry == target)
        return;
    memmove(rows->key + target, rows->key + entry, n * sizeof *rows->key);
    memmove(rows->value + target, rows->value + entry, n * sizeof *rows->value);
    if (rows->has_fields)
        memmove(rows->field + target, rows->field + entry, n * sizeof *rows->field);
}

void held_out_filter(const RubatoDataSpec *spec, uint64_t offset, size_t first, RowBlock *rows)
{
    const uint64_t text = rubato_mix64(offset);
    size_t to = first;

    if (!(spec->held_out > 0))
        return;
    for (size_t row = first; row < rows->n_rows; row++)
        if (is_held_out(spec->held_out, hash_row(rows, row, text + (row - first))) ==
            spec->only_held_out)
            move_row(rows, row, to++);
    rows->n_rows = to;
    rows->n_entries = to > 0 ? rows->row_start[to] : 0;
}
