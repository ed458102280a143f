/* Rows that Gets found.
 *
 * The lists are used in turn. One that an Add has come to the end of is empty, and the next to be
 * used. An Add goes on in the list where the last one stopped; if its key is not there, it looks at
 * the next keys of all lists.
 *
 * Thread: the shard's present owner. */
#include "models/shard/found_rows.h"

#include <string.h>

#define LEFT_OUT_MOST 4u /* keys in a row that an Add may leave out */
#define UNLISTED_MOST 8u /* keys of a call for which all lists are looked at in vain */
#define LINE_BYTES 64u

void found_rows_clear(FoundRows *found)
{
    for (size_t i = 0; i < FOUND_ROWS_LISTS; i++) {
        g_free(found->lists[i].keys);
        g_free(found->lists[i].rows);
    }
}

uint64_t found_rows_bytes(const FoundRows *found)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < FOUND_ROWS_LISTS; i++)
        n_bytes += found->lists[i].n_allocated * (sizeof(RubatoKey) + sizeof(void *));
    return n_bytes;
}

/* ---- what a Get leaves ---- */

/* A list without keys that are still to be asked for, or else the one that has waited longest. */
static uint32_t choose_list(const FoundRows *found)
{
    for (uint32_t i = 1; i <= FOUND_ROWS_LISTS; i++) {
        const uint32_t at = (found->writing + i) % FOUND_ROWS_LISTS;

        if (found->lists[at].next == found->lists[at].n)
            return at;
    }
    return (found->writing + 1) % FOUND_ROWS_LISTS;
}

static bool make_room(FoundList *list, size_t n)
{
    if (n <= list->n_allocated)
        return true;
    g_free(list->keys);
    g_free(list->rows);
    list->keys = g_try_new(RubatoKey, n);
    list->rows = g_try_new(void *, n);
    list->n_allocated = list->keys != NULL && list->rows != NULL ? n : 0;
    return list->n_allocated > 0;
}

/* Whether Adds use what Gets leave. It is tried again now and then. */
static bool is_wanted(FoundRows *found)
{
    if (found->n_unwanted < FOUND_ROWS_PATIENCE)
        return true;
    found->n_skipped = (found->n_skipped + 1) % FOUND_ROWS_PAUSE;
    return found->n_skipped == 0;
}

void found_rows_begin(FoundRows *found, size_t n)
{
    FoundList *list;

    found->is_writing = n >= FOUND_ROWS_LEAST && n <= FOUND_ROWS_MOST && is_wanted(found);
    if (!found->is_writing)
        return;
    found->writing = choose_list(found);
    list = &found->lists[found->writing];
    list->n = list->next = 0;
    found->is_writing = make_room(list, n);
    found->n_unwanted += found->is_writing && found->n_unwanted < FOUND_ROWS_PATIENCE;
}

void found_rows_put(FoundRows *found, const RubatoKey *keys, size_t n, void *const *rows)
{
    FoundList *list = &found->lists[found->writing];

    if (!found->is_writing)
        return;
    memcpy(list->keys + list->n, keys, n * sizeof *keys);
    memcpy(list->rows + list->n, rows, n * sizeof *rows);
    list->n += n;
}

/* ---- what an Add asks for ---- */

/* Goes on to the key in the list. False: it is not among the next ones. */
static inline bool advance(FoundList *list, RubatoKey key)
{
    const size_t end = MIN(list->n, list->next + 1 + LEFT_OUT_MOST);

    for (size_t i = list->next; i < end; i++)
        if (list->keys[i] == key) {
            list->next = i;
            return true;
        }
    return false;
}

/* The list in which the key is among the next ones; NULL if there is none. */
static FoundList *find_list(FoundRows *found, RubatoKey key)
{
    for (uint32_t i = 0; i < FOUND_ROWS_LISTS; i++)
        if (advance(&found->lists[i], key)) {
            found->reading = i;
            return &found->lists[i];
        }
    return NULL;
}

size_t found_rows_take(FoundRows *found, const RubatoKey *keys, size_t n, void **rows,
                       size_t row_bytes)
{
    const size_t last = MIN(row_bytes - 1, LINE_BYTES);
    FoundList *list = &found->lists[found->reading];
    size_t n_unlisted = 0, n_absent = 0;

    for (size_t i = 0; i < n; i++) {
        if (list == NULL || !advance(list, keys[i]))
            list = n_unlisted < UNLISTED_MOST ? find_list(found, keys[i]) : NULL;
        rows[i] = list == NULL ? NULL : list->rows[list->next++];
        n_unlisted += list == NULL;
        if (rows[i] == NULL) {
            n_absent++;
            continue;
        }
        __builtin_prefetch(rows[i], 1);
        __builtin_prefetch((unsigned char *)rows[i] + last, 1);
    }
    if (n_unlisted < n)
        found->n_unwanted = 0;
    return n_absent;
}
