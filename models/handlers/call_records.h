/* What a part with replicas remembers of calls of handlers that write: those that have come and
 * have not run, and those that have failed. It is part of the part's state, on its primary and on
 * its replicas alike. So whoever has the part can answer a call that is sent again.
 *
 * A call that has run well leaves no record: the number of its worker's last call says that it has
 * come (replica_feed.h, InputSender).
 *
 * Of failures a part keeps the last ones of each worker, up to a bound.
 *
 * Thread: the part's owner. */
#ifndef RUBATO_MODELS_HANDLERS_CALL_RECORDS_H
#define RUBATO_MODELS_HANDLERS_CALL_RECORDS_H

#include <glib.h>
#include <rubato/request.h>
#include <stdbool.h>
#include <stdint.h>

/* So many failures of a worker are kept, with so many bytes of the reason. */
#define CALL_RECORDS_FAILURES 64u
#define CALL_RECORDS_REASON_BYTES 1000u

/* Which call it is: by its number, or, if another process makes it again in the place of a lost
 * one, by the place among its worker's changes (replica_feed.h). Between tasks the worker is a
 * node. */
typedef struct {
    uint32_t worker;
    uint64_t serial;   /* 0: a call without a number */
    uint64_t clock, n; /* n 0: it is not counted */
} CallKey;

typedef struct CallRecords CallRecords;

typedef struct CallRecord {
    CallKey key;
    bool is_pending;    /* it has not run */
    bool hides_earlier; /* failures of the same worker before this one have been dropped */
    char *failure;      /* why it failed; NULL: it has not failed yet */

    RubatoRequest *waiting; /* those to be answered when it has run; the last one first */
    CallRecords *records;
    GList link;
} CallRecord;

/* Frees all. Nobody waits. NULL is allowed. */
void call_records_free(CallRecords *records);

/* A call has come: it is pending. *records NULL: there are none yet. */
CallRecord *call_records_add(CallRecords **records, const CallKey *key);

/* A failure as another holder of the part has it, which takes the place of a pending record. */
void call_record_restore(CallRecord *record, const char *failure, bool hides_earlier);

/* The request waits until the pending call has run. */
void call_record_wait(CallRecord *record, RubatoRequest *request);

/* The requests that wait, the first one first: they are the caller's. */
RubatoRequest *call_record_take_waiting(CallRecord *record);

/* The call has run; NULL: without a failure. The record may be gone. Nobody waits. */
void call_record_end(CallRecord *record, const char *failure);

/* What is known of a call that has come before: by its number, or by its place; NULL: it has run
 * well. */
CallRecord *call_records_find(const CallRecords *records, uint32_t worker, uint64_t serial);
CallRecord *call_records_find_change(const CallRecords *records, uint32_t worker, uint64_t clock,
                                     uint64_t n);

/* Whether the failure of such a call may have been dropped. */
bool call_records_may_hide(const CallRecords *records, const CallKey *key);

/* Record i, in their order; NULL past the last. */
const CallRecord *call_records_get(const CallRecords *records, guint i);

#endif
