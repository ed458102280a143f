/* Rows of few bytes, of one shard: for each room an array without holes.
 *
 * A row's place is its number in the array of its room. When a row leaves, the last one of the
 * array takes its place. So there is never garbage, whatever changes; beside its room a row takes
 * the 8 bytes of its key, by which the storage finds whose place has changed.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_RAGGED_SHORT_ROWS_H
#define RUBATO_MODELS_RAGGED_SHORT_ROWS_H

#include <glib.h>
#include <rubato/types.h>
#include <stdbool.h>
#include <string.h>

/* A room has 8 to 16 bytes, or a multiple of 4 up to 64. */
#define SHORT_ROWS_LEAST ((size_t)8)
#define SHORT_ROWS_EXACT ((size_t)16)
#define SHORT_ROWS_UNIT ((size_t)4)
#define SHORT_ROWS_MOST ((size_t)64)
#define SHORT_ROWS_N_ROOMS                     \
    (SHORT_ROWS_EXACT - SHORT_ROWS_LEAST + 1 + \
     (SHORT_ROWS_MOST - SHORT_ROWS_EXACT) / SHORT_ROWS_UNIT)

#define SHORT_ROWS_OF_CHUNK 64u

typedef struct {
    unsigned char **chunks; /* of SHORT_ROWS_OF_CHUNK rows each: a key and its row's bytes */
    uint64_t n_chunks, n_pointers;
    uint64_t n; /* rows */
} ShortArray;

/* All zero: no rows. */
typedef struct {
    ShortArray arrays[SHORT_ROWS_N_ROOMS];
    uint64_t n_bytes; /* of chunks and pointers */
} ShortRows;

static inline size_t short_rows_room(size_t length)
{
    return length <= SHORT_ROWS_EXACT
               ? length
               : (length + SHORT_ROWS_UNIT - 1) / SHORT_ROWS_UNIT * SHORT_ROWS_UNIT;
}

/* The number of a room's array. */
static inline size_t short_rows_array(size_t room)
{
    return room <= SHORT_ROWS_EXACT
               ? room - SHORT_ROWS_LEAST
               : SHORT_ROWS_EXACT - SHORT_ROWS_LEAST + (room - SHORT_ROWS_EXACT) / SHORT_ROWS_UNIT;
}

/* The key of a row, before its bytes; at any alignment, as these are. */
static inline unsigned char *short_rows_key_at(const ShortRows *rows, size_t room, uint64_t place)
{
    const ShortArray *array = &rows->arrays[short_rows_array(room)];

    return array->chunks[place / SHORT_ROWS_OF_CHUNK] +
           place % SHORT_ROWS_OF_CHUNK * (sizeof(RubatoKey) + room);
}

static inline unsigned char *short_rows_at(const ShortRows *rows, size_t room, uint64_t place)
{
    return short_rows_key_at(rows, room, place) + sizeof(RubatoKey);
}

/* A place for a key's row; its bytes are not set. False if there is no memory. */
bool short_rows_take(ShortRows *rows, size_t room, RubatoKey key, uint64_t *place);

/* The row leaves. True if another one has taken its place: the last of the array, whose key and
 * former place are set. */
bool short_rows_drop(ShortRows *rows, size_t room, uint64_t place, RubatoKey *moved,
                     uint64_t *moved_from);

void short_rows_clear(ShortRows *rows);

#endif
