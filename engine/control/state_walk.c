/* See state_walk.h.
 *
 * Runs on any thread. The functions depend on their arguments only. */
#include "engine/control/state_walk.h"

#include <string.h>

enum { NUMBER_BITS = 7 }; /* in a byte; its highest bit says that more follow */

static uint8_t take_byte(StateWalk *walk)
{
    if (walk->at == walk->end) {
        walk->is_wrong = true;
        return 0;
    }
    return *walk->at++;
}

static uint64_t read_number(StateWalk *walk)
{
    uint64_t number = 0;
    unsigned shift = 0;
    uint8_t byte;

    do {
        byte = take_byte(walk);
        if (shift < 64)
            number |= (uint64_t)(byte & 0x7f) << shift;
        shift += NUMBER_BITS;
    } while ((byte & 0x80) != 0);
    return walk->is_wrong ? 0 : number;
}

static void write_number(GByteArray *out, uint64_t number)
{
    guint8 bytes[10];
    guint n = 0;

    for (; number > 0x7f; number >>= NUMBER_BITS)
        bytes[n++] = (guint8)(number | 0x80);
    bytes[n++] = (guint8)number;
    g_byte_array_append(out, bytes, n);
}

uint64_t walk_number(StateWalk *walk, uint64_t number)
{
    if (walk_reads(walk))
        return read_number(walk);
    write_number(walk->out, number);
    return number;
}

size_t walk_count(StateWalk *walk, size_t n)
{
    const uint64_t count = walk_number(walk, n);

    if (!walk_reads(walk) || count <= (uint64_t)(walk->end - walk->at))
        return (size_t)count;
    walk->is_wrong = true;
    return 0;
}

/* bytes: NULL is allowed if there are none. */
static void append(StateWalk *walk, const void *bytes, size_t size)
{
    if (size > 0)
        g_byte_array_append(walk->out, bytes, (guint)size);
}

void walk_bytes(StateWalk *walk, void *bytes, size_t size)
{
    if (size == 0)
        return;
    if (!walk_reads(walk)) {
        append(walk, bytes, size);
    } else if (size <= (size_t)(walk->end - walk->at)) {
        memcpy(bytes, walk->at, size);
        walk->at += size;
    } else {
        walk->is_wrong = true;
        memset(bytes, 0, size);
    }
}

double walk_double(StateWalk *walk, double number)
{
    walk_bytes(walk, &number, sizeof number);
    return number;
}

void walk_flags(StateWalk *walk, bool *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WALK(walk, flags[i]);
}

void walk_u32s(StateWalk *walk, uint32_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WALK(walk, numbers[i]);
}

void walk_u64s(StateWalk *walk, uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WALK(walk, numbers[i]);
}

void walk_text(StateWalk *walk, char **text)
{
    const size_t size = walk_count(walk, *text == NULL ? 0 : strlen(*text) + 1);

    if (!walk_reads(walk)) {
        append(walk, *text, size);
        return;
    }
    g_free(*text);
    *text = NULL;
    if (size > 0 && walk->at[size - 1] == '\0')
        *text = g_strdup((const char *)walk->at);
    walk->is_wrong |= size > 0 && *text == NULL;
    walk->at += size;
}

void walk_error(StateWalk *walk, GError **error)
{
    g_autofree char *text = *error == NULL ? NULL : g_strdup((*error)->message);
    const int code =
        (int)walk_number(walk, *error == NULL ? 0 : (uint64_t)(unsigned)(*error)->code);

    walk_text(walk, &text);
    if (!walk_reads(walk))
        return;
    g_clear_error(error);
    if (text != NULL)
        *error = g_error_new_literal(RUBATO_ERROR, code, text);
}

void walk_control(StateWalk *walk, Control *control)
{
    g_autoptr(GByteArray) body =
        walk_reads(walk) || control->kind == 0 ? NULL : control_encode(control);
    const size_t size = walk_count(walk, body == NULL ? 0 : body->len);

    if (!walk_reads(walk)) {
        append(walk, body == NULL ? NULL : body->data, size);
        return;
    }
    control_clear(control);
    *control = (Control){ 0 };
    walk->is_wrong |= size > 0 && !control_decode(walk->at, size, control, NULL);
    walk->at += size;
}

void walk_array(StateWalk *walk, GArray *array, WalkElementFunc each)
{
    const size_t n = walk_count(walk, array->len);
    const guint size = g_array_get_element_size(array);

    if (walk_reads(walk))
        g_array_set_size(array, (guint)n);
    if (walk_reads(walk) && n > 0) /* the elements are zeros first */
        memset(array->data, 0, n * size);
    for (size_t i = 0; i < n; i++)
        each(walk, array->data + i * size);
}

void walk_texts(StateWalk *walk, GHashTable *texts)
{
    size_t n = walk_count(walk, g_hash_table_size(texts));
    GHashTableIter iter;
    gpointer name, text;

    if (!walk_reads(walk)) {
        g_hash_table_iter_init(&iter, texts);
        while (g_hash_table_iter_next(&iter, &name, &text)) {
            walk_text(walk, (char **)&name);
            walk_text(walk, (char **)&text);
        }
        return;
    }
    for (; n > 0; n--) {
        char *key = NULL, *value = NULL;

        walk_text(walk, &key);
        walk_text(walk, &value);
        if (key == NULL || value == NULL) {
            walk->is_wrong = true;
            g_free(key);
            g_free(value);
            return;
        }
        g_hash_table_insert(texts, key, value);
    }
}
