/* Judges the rows of a table by the records alone.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_RULES_H
#define APPS_RUBATO_HISTORY_RULES_H

#include "apps/rubato/history/history_events.h"

typedef struct {
    uint64_t n_rows;      /* rows of Gets that were compared */
    uint64_t n_undecided; /* of these, rows that lie between the lowest and the highest that may be,
                           * with too many ways to reach them to try all */
    uint64_t n_unjudged;  /* rows that could not be compared */
} HistoryCounts;

/* Sorts the table's entries, and complains of each row that breaks a rule. */
void history_judge(const History *history, HistoryTable *table, HistoryCounts *counts);

/* The same of a table of ragged rows: history_ragged_parts.c. */
void history_judge_ragged(const History *history, HistoryTable *table, HistoryCounts *counts);

#endif
