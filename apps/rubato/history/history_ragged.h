/* Requests to tables of ragged rows: of workers, and what servers have run.
 *
 * A server records which requests that write it has run, and as its part's how many-th. What a
 * request brings is in its worker's record. So all states of a part follow: history_ragged_rows.c
 * makes them, history_ragged_parts.c judges what servers have run, and history_ragged_reads.c what
 * workers have seen.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_RAGGED_H
#define APPS_RUBATO_HISTORY_RAGGED_H

#include "apps/rubato/history/history_events.h"

/* A request of a worker, or of an engine, on one part. */
typedef struct {
    uint32_t source, part;
    uint16_t process; /* as HistoryFile.process */
    uint8_t flags;
    RaggedOp op;
    uint64_t clock, n_adds, number;
    uint64_t at;

    /* its keys, lengths and rows: in a file, or gathered from several records */
    const uint8_t *bytes;
    uint64_t n_bytes;
    GByteArray *gathered; /* NULL: they are in a file */

    uint32_t n_keys;
    bool is_run, is_whole; /* is_whole: what follows is set */
    const uint8_t *keys, *lengths, *values;

    uint64_t order;  /* of one that writes: as its part's how many-th it has run; 0: it has not */
    bool has_failed; /* there */
} RaggedRequest;

/* What a server has run; number 0: the part has come to it. */
typedef struct {
    const HistoryFile *file;
    bool is_lost;   /* its process was lost */
    uint64_t reach; /* the highest order of the file's on this part */
    Record record;
} RaggedRan;

typedef struct HistoryRagged {
    GArray *requests; /* of RaggedRequest: of each source in its order */
    GArray *coming;   /* of guint: those of which records are still to come */
    GArray *ran;      /* of RaggedRan */
} HistoryRagged;

static inline bool ragged_writes(const RaggedRequest *request)
{
    return request->op >= RAGGED_ADD;
}

uint64_t ragged_key(const RaggedRequest *request, uint32_t i);
uint32_t ragged_length(const RaggedRequest *request, uint32_t i);

/* ---- reading ---- */

void history_take_ragged_table(HistoryTable *table);
void history_free_ragged(HistoryTable *table);
void history_take_ragged(History *history, HistoryTable *table, uint32_t source,
                         const Record *record);
void history_take_ragged_ran(const History *history, HistoryTable *table, const Record *record);

/* As history_forget_calls. */
uint64_t history_forget_ragged(HistoryTable *table, uint32_t source, uint64_t clock,
                               uint64_t n_adds);

/* All files have been read: finds keys, lengths and values of each request. */
void history_open_ragged(const History *history, HistoryTable *table);

#endif
