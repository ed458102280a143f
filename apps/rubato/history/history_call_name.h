/* What names a call that writes: its caller's records and those of servers have it.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_CALL_NAME_H
#define APPS_RUBATO_HISTORY_CALL_NAME_H

#include "apps/rubato/history/history_events.h"

/* Of a worker by its clock, of an engine by its node. */
typedef struct {
    uint32_t epoch, rank; /* 0 and the node's id: an engine's */
    uint64_t clock, number;
} CallName;

/* The name of a call that the source has made. */
CallName call_name_of(const HistorySource *source, uint64_t clock, uint64_t number);

/* By task, worker, clock, number. */
int call_name_compare(const CallName *a, const CallName *b);

/* Tells what is wrong with the call. */
void call_name_complain(const History *history, const HistoryTable *table, const char *rule,
                        const CallName *name, const char *format, ...) G_GNUC_PRINTF(5, 6);

#endif
