/* Rows that Gets found, kept for the Adds that follow.
 *
 * A worker that trains adds to the keys that it has just asked for, in the same order. So a large
 * Get leaves its keys and where their rows are, and an Add compares its keys with those, one after
 * the other, instead of searching for them again: a search waits for memory, a comparison does not.
 * The Add may leave out some keys, as one does that brings the sums of several workers. What does
 * not match is searched for as ever, so a guess that is wrong costs only time.
 *
 * This is only for rows that stay where they are (RubatoStorageOps).
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODELS_SHARD_FOUND_ROWS_H
#define RUBATO_MODELS_SHARD_FOUND_ROWS_H

#include <rubato/rubato.h>

enum {
    FOUND_ROWS_LISTS = 8,        /* of so many workers at a time */
    FOUND_ROWS_LEAST = 512,      /* keys of a Get; the rows of fewer stay in the caches */
    FOUND_ROWS_MOST = 64 * 1024, /* so a list has at most 1 MiB */
    FOUND_ROWS_PATIENCE = 2 * FOUND_ROWS_LISTS, /* lists in a row that no Add wanted */
    FOUND_ROWS_PAUSE = 64,                      /* then only one in so many Gets leaves one */
};

/* What one Get left. */
typedef struct {
    RubatoKey *keys;
    void **rows; /* NULL: it was absent */
    size_t n, n_allocated;
    size_t next; /* those before have been asked for */
} FoundList;

typedef struct {
    FoundList lists[FOUND_ROWS_LISTS];
    uint32_t writing, reading; /* of the lists */
    bool is_writing;
    uint32_t n_unwanted; /* lists that no Add has wanted since one did */
    uint32_t n_skipped;  /* Gets that left none */
} FoundRows;

void found_rows_clear(FoundRows *found);
uint64_t found_rows_bytes(const FoundRows *found);

/* Begins the list of a Get of n keys, and adds what it found for some of them. */
void found_rows_begin(FoundRows *found, size_t n);
void found_rows_put(FoundRows *found, const RubatoKey *keys, size_t n, void *const *rows);

/* Sets rows[i] to the row of keys[i], or to NULL if it is not known, and returns how many are not.
 * Prefetches the rows. */
size_t found_rows_take(FoundRows *found, const RubatoKey *keys, size_t n, void **rows,
                       size_t row_bytes);

#endif
