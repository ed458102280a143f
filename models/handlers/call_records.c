/* See call_records.h. Records are in the order in which their calls came.
 *
 * Thread: the part's owner. */
#include "models/handlers/call_records.h"

struct CallRecords {
    GQueue list; /* of CallRecord */
};

static void free_record(CallRecord *record)
{
    g_queue_unlink(&record->records->list, &record->link);
    g_free(record->failure);
    g_free(record);
}

void call_records_free(CallRecords *records)
{
    if (records == NULL)
        return;
    while (records->list.head != NULL)
        free_record(records->list.head->data);
    g_free(records);
}

CallRecord *call_records_add(CallRecords **records, const CallKey *key)
{
    CallRecord *const record = g_new0(CallRecord, 1);

    if (*records == NULL)
        *records = g_new0(CallRecords, 1);
    record->key = *key;
    record->is_pending = true;
    record->records = *records;
    record->link.data = record;
    g_queue_push_tail_link(&(*records)->list, &record->link);
    return record;
}

void call_record_restore(CallRecord *record, const char *failure, bool hides_earlier)
{
    record->is_pending = false;
    record->failure = g_strdup(failure);
    record->hides_earlier = hides_earlier;
}

void call_record_wait(CallRecord *record, RubatoRequest *request)
{
    request->next = record->waiting;
    record->waiting = request;
}

RubatoRequest *call_record_take_waiting(CallRecord *record)
{
    RubatoRequest *first = NULL;

    for (RubatoRequest *request = record->waiting, *next; request != NULL; request = next) {
        next = request->next;
        request->next = first;
        first = request;
    }
    record->waiting = NULL;
    return first;
}

/* Drops the oldest failure of a worker that has too many. */
static void bound(CallRecords *records, uint32_t worker)
{
    CallRecord *oldest = NULL, *second = NULL;
    uint32_t n = 0;

    for (GList *at = records->list.head; at != NULL; at = at->next) {
        CallRecord *const record = at->data;

        if (record->is_pending || record->key.worker != worker)
            continue;
        n++;
        if (oldest == NULL)
            oldest = record;
        else if (second == NULL)
            second = record;
    }
    if (n <= CALL_RECORDS_FAILURES)
        return;
    second->hides_earlier = true;
    free_record(oldest);
}

void call_record_end(CallRecord *record, const char *failure)
{
    CallRecords *const records = record->records;
    const uint32_t worker = record->key.worker;

    if (failure == NULL) {
        free_record(record);
        return;
    }
    g_autofree char *some = g_strndup(failure, CALL_RECORDS_REASON_BYTES);

    record->is_pending = false;
    record->failure = g_utf8_make_valid(some, -1);
    bound(records, worker);
}

CallRecord *call_records_find(const CallRecords *records, uint32_t worker, uint64_t serial)
{
    for (GList *at = records == NULL ? NULL : records->list.tail; at != NULL; at = at->prev) {
        CallRecord *const record = at->data;

        if (record->key.worker == worker && record->key.serial == serial)
            return record;
    }
    return NULL;
}

CallRecord *call_records_find_change(const CallRecords *records, uint32_t worker, uint64_t clock,
                                     uint64_t n)
{
    for (GList *at = records == NULL ? NULL : records->list.tail; at != NULL; at = at->prev) {
        CallRecord *const record = at->data;

        if (record->key.worker == worker && record->key.clock == clock && record->key.n == n)
            return record;
    }
    return NULL;
}

/* Numbers and places both grow. */
static bool is_before(const CallKey *key, const CallKey *other)
{
    if (key->serial != 0 && other->serial != 0 && key->n == 0)
        return key->serial < other->serial;
    return key->clock < other->clock || (key->clock == other->clock && key->n < other->n);
}

bool call_records_may_hide(const CallRecords *records, const CallKey *key)
{
    for (GList *at = records == NULL ? NULL : records->list.head; at != NULL; at = at->next) {
        const CallRecord *const record = at->data;

        if (record->key.worker == key->worker && record->hides_earlier &&
            is_before(key, &record->key))
            return true;
    }
    return false;
}

const CallRecord *call_records_get(const CallRecords *records, guint i)
{
    return records == NULL ? NULL : g_queue_peek_nth((GQueue *)(uintptr_t)&records->list, i);
}
