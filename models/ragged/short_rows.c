/* Rows of few bytes. See short_rows.h.
 *
 * An array grows and shrinks by chunks, and its rows never move to other chunks as it grows. So
 * memory follows the number of rows of each room at once, and no request copies more than it
 * changes.
 *
 * Thread: the shard's present owner. */
#include "models/ragged/short_rows.h"

#include <assert.h>

#include "io/memory_room.h"

#define FIRST_POINTERS ((uint64_t)8)

static ShortArray *array_of(ShortRows *rows, size_t room)
{
    assert(room >= SHORT_ROWS_LEAST && room <= SHORT_ROWS_MOST && room == short_rows_room(room));
    return &rows->arrays[short_rows_array(room)];
}

static size_t row_bytes(size_t room)
{
    return sizeof(RubatoKey) + room;
}

/* False if there is no memory; nothing has changed then. */
static bool add_chunk(ShortRows *rows, ShortArray *array, size_t room)
{
    const size_t n_bytes = SHORT_ROWS_OF_CHUNK * row_bytes(room);

    if (array->n_chunks == array->n_pointers) {
        const uint64_t n = MAX(FIRST_POINTERS, 2 * array->n_pointers);
        unsigned char **const chunks = g_try_renew(unsigned char *, array->chunks, n);

        if (chunks == NULL)
            return false;
        rows->n_bytes += (n - array->n_pointers) * sizeof *chunks;
        array->chunks = chunks;
        array->n_pointers = n;
    }
    unsigned char *const chunk = memory_try_malloc(n_bytes);

    if (chunk == NULL)
        return false;
    array->chunks[array->n_chunks++] = chunk;
    rows->n_bytes += n_bytes;
    return true;
}

/* What a peak has left of the pointers shrinks with the rows. If there is no memory for fewer of
 * them, they stay. */
static void drop_chunk(ShortRows *rows, ShortArray *array, size_t room)
{
    g_free(array->chunks[--array->n_chunks]);
    rows->n_bytes -= SHORT_ROWS_OF_CHUNK * row_bytes(room);
    if (array->n_pointers == FIRST_POINTERS || array->n_chunks > array->n_pointers / 4)
        return;
    const uint64_t n = array->n_pointers / 2;
    unsigned char **const chunks = g_try_renew(unsigned char *, array->chunks, n);

    if (chunks == NULL)
        return;
    rows->n_bytes -= (array->n_pointers - n) * sizeof *chunks;
    array->chunks = chunks;
    array->n_pointers = n;
}

bool short_rows_take(ShortRows *rows, size_t room, RubatoKey key, uint64_t *place)
{
    ShortArray *const array = array_of(rows, room);

    if (array->n == array->n_chunks * SHORT_ROWS_OF_CHUNK && !add_chunk(rows, array, room))
        return false;
    *place = array->n++;
    memcpy(short_rows_key_at(rows, room, *place), &key, sizeof key);
    return true;
}

bool short_rows_drop(ShortRows *rows, size_t room, uint64_t place, RubatoKey *moved,
                     uint64_t *moved_from)
{
    ShortArray *const array = array_of(rows, room);
    const uint64_t last = --array->n;
    const bool moves = place != last;

    assert(place <= last);
    if (moves) {
        unsigned char *const from = short_rows_key_at(rows, room, last);

        memcpy(moved, from, sizeof *moved);
        *moved_from = last;
        memcpy(short_rows_key_at(rows, room, place), from, row_bytes(room));
    }
    if (array->n == (array->n_chunks - 1) * SHORT_ROWS_OF_CHUNK)
        drop_chunk(rows, array, room);
    return moves;
}

void short_rows_clear(ShortRows *rows)
{
    for (size_t i = 0; i < SHORT_ROWS_N_ROOMS; i++) {
        for (uint64_t j = 0; j < rows->arrays[i].n_chunks; j++)
            g_free(rows->arrays[i].chunks[j]);
        g_free(rows->arrays[i].chunks);
    }
    *rows = (ShortRows){ 0 };
}
