/* The ragged rows of a part, as the requests that it has run make them, one after the other: for
 * each row all states that it has had.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_RAGGED_ROWS_H
#define APPS_RUBATO_HISTORY_RAGGED_ROWS_H

#include "apps/rubato/history/history_ragged.h"

/* A row from one request of the part on, up to the next one that changes it. */
typedef struct {
    uint64_t order; /* of the request; 0: before all */
    uint64_t hash;
    uint32_t length; /* values */
} RaggedState;

typedef struct {
    uint64_t key;
    GArray *states; /* of RaggedState, by order; the first one is empty, of order 0 */
    GByteArray *bytes;
    uint64_t hash_of_words; /* of the first n_hashed bytes */
    size_t n_hashed;
} RaggedRow;

typedef struct {
    RubatoDtype dtype;
    GHashTable *rows; /* key → RaggedRow */
    uint64_t n_bytes; /* of all rows, now */
} RaggedRows;

void ragged_rows_init(RaggedRows *rows, RubatoDtype dtype);
void ragged_rows_clear(RaggedRows *rows);

/* Runs a request that writes. Returns whether it fails. Its states are of request->order. */
bool ragged_rows_run(RaggedRows *rows, const RaggedRequest *request);

/* The row; NULL: it was never written. */
const RaggedRow *ragged_rows_find(const RaggedRows *rows, uint64_t key);

/* The place among its states of the one that the row has after so many requests. */
guint ragged_row_state_at(const RaggedRow *row, uint64_t order);

/* What the i-th key of a request that reads has seen. */
bool ragged_sees_state(const RaggedRequest *request, uint32_t i, const RaggedState *state);

/* The state of a row that nobody has written. */
RaggedState ragged_empty_state(void);

#endif
