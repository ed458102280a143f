/* State as bytes: one function for each struct walks through its members, and either writes them
 * or, in a struct that is new, reads them. So what is written and what is read cannot differ.
 *
 * Numbers take as many bytes as they need. Whoever writes them and reads them is the same build.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_CONTROL_STATE_WALK_H
#define RUBATO_ENGINE_CONTROL_STATE_WALK_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/control/control.h"

typedef struct {
    GByteArray *out;         /* NULL: it reads */
    const uint8_t *at, *end; /* what is left to be read */
    bool is_wrong;           /* what was read makes no sense: from there on all is 0, or NULL */
} StateWalk;

static inline bool walk_reads(const StateWalk *walk)
{
    return walk->out == NULL;
}

/* Writes the number, and returns it; or returns the one that is read. */
uint64_t walk_number(StateWalk *walk, uint64_t number);

/* A member that is an integer, an enumeration or a bool. */
#define WALK(walk, member) ((member) = (__typeof__(member))walk_number((walk), (uint64_t)(member)))

double walk_double(StateWalk *walk, double number);

/* How many elements follow, each of a byte at least. */
size_t walk_count(StateWalk *walk, size_t n);

/* Bytes as they lie in memory. */
void walk_bytes(StateWalk *walk, void *bytes, size_t size);

void walk_flags(StateWalk *walk, bool *flags, size_t n);
void walk_u32s(StateWalk *walk, uint32_t *numbers, size_t n);
void walk_u64s(StateWalk *walk, uint64_t *numbers, size_t n);

/* A text that is owned; NULL differs from an empty one. What was there is freed in reading, as in
 * the next three. */
void walk_text(StateWalk *walk, char **text);
void walk_error(StateWalk *walk, GError **error);

/* A message, with its texts; kind 0: none. */
void walk_control(StateWalk *walk, Control *control);

/* An array: `each` walks through an element. */
typedef void (*WalkElementFunc)(StateWalk *walk, void *element);
void walk_array(StateWalk *walk, GArray *array, WalkElementFunc each);

/* Texts by texts, both owned. */
void walk_texts(StateWalk *walk, GHashTable *texts);

#endif
