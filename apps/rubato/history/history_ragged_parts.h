/* A part of a table of ragged rows, as its servers have run it.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_RAGGED_PARTS_H
#define APPS_RUBATO_HISTORY_RAGGED_PARTS_H

#include "apps/rubato/history/history_judge.h"
#include "apps/rubato/history/history_ragged_rows.h"

typedef struct {
    const History *history;
    HistoryTable *table;
    HistoryCounts *counts;
    uint32_t part;
    RaggedRows rows;
    GPtrArray *run;   /* of RaggedRequest: what it has run, in its order */
    bool is_unjudged; /* it is not known what it has run: its rows are not compared */
} RaggedPart;

/* ---- history_ragged_reads.c ---- */

/* Judges what requests to the part have seen, n of them, those of each source in its order. */
void history_judge_ragged_reads(const RaggedPart *part, RaggedRequest *const *reads, guint n);

/* What a request is called in a complaint. (transfer full) */
char *ragged_name(const History *history, const RaggedRequest *request);

#endif
