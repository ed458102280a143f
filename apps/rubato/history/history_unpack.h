/* Packed records of a history, as docs/history.md tells them: shares no code with what packs them.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_UNPACK_H
#define APPS_RUBATO_HISTORY_UNPACK_H

#include "apps/rubato/history/history_file.h"

/* What a record says with the help of those before it in its chunk. All 0: there was none. */
typedef struct {
    /* the keys of the last one that has some */
    const uint64_t *keys; /* NULL: there is none */
    uint32_t n_keys;
    unsigned run;
    /* of the last packed one */
    uint64_t clock, n_adds;
} RecordsBefore;

/* Added to the kind of a packed record. */
enum { RECORD_PACKED = 128 };

/* Reads the record at *at, which has RECORD_PACKED, and sets *at to where the next one begins.
 * Keys and rows that are not in the file as they are lie in the file's `unpacked`. NULL, or what is
 * wrong with it. */
const char *history_unpack(HistoryFile *file, const RecordOwner *owner, RecordsBefore *before,
                           const uint8_t **at, const uint8_t *end, Record *record);

#endif
