/* Calls of handlers that write.
 *
 * A caller records which parts its call goes to; a server records each call that it has run on a
 * part, with each row that it has changed, before and after. The two have the same number. A part
 * with replicas is on several servers, each of which runs the call: their records say the same, and
 * count once. Those of a process that was lost count if no other one has the call: what it ran last
 * may not have come to the others.
 *
 * To a row, a call is an Add of what it has changed, and before that a Get of what it has found. So
 * all rules of Adds and Gets hold for it. Sums remain right however the handler computes, because
 * on its part calls and Adds come one after the other.
 *
 * Threads: one. */
#include <string.h>

#include "apps/rubato/history/history_call_name.h"

/* ---- taking records ---- */

void history_take_call(History *history, HistoryTable *table, uint32_t source, const Record *record)
{
    const HistorySource *const caller = history_source(history, source);
    const HistoryCall call = { .source = source,
                               .process = (uint16_t)MIN(history->file->process, UINT16_MAX),
                               .flags = (uint8_t)record->flags,
                               .parts_run = record->flags & RECORD_RUN_OF_KEYS,
                               .clock = record->clock,
                               .number = record->n_adds,
                               .n_adds = caller->handler_add,
                               .parts = record->keys,
                               .n_parts = record->n_keys,
                               .at = record->at,
                               .name = caller->handler,
                               .n_name = caller->n_handler };

    g_array_append_val(table->calls, call);
    table->n_handlers -= table->n_handlers > 0;
}

void history_take_applied(History *history, HistoryTable *table, const Record *record)
{
    const HistoryApplied applied = { .file = history->file, .record = *record };

    g_array_append_val(table->applied, applied);
}

uint64_t history_forget_calls(HistoryTable *table, uint32_t source, uint64_t clock, uint64_t n_adds)
{
    for (guint i = table->calls->len; i-- > 0;) {
        const HistoryCall *const call = &g_array_index(table->calls, HistoryCall, i);

        if (call->source != source || call->clock < clock)
            continue;
        n_adds = MIN(n_adds, call->n_adds);
        g_array_remove_index(table->calls, i);
    }
    return n_adds;
}

char *history_name_call(const HistoryTable *table, uint32_t source, uint64_t n_adds)
{
    for (guint i = 0; i < table->calls->len; i++) {
        const HistoryCall *const call = &g_array_index(table->calls, HistoryCall, i);

        if (call->source == source && call->n_adds == n_adds)
            return g_strndup(call->name != NULL ? call->name : "?", call->n_name);
    }
    return NULL;
}

/* ---- which call it is ---- */

static CallName name_of_call(const History *history, const HistoryCall *call)
{
    return call_name_of(history_source(history, call->source), call->clock, call->number);
}

static CallName name_of_applied(const HistoryApplied *applied)
{
    const Record *const record = &applied->record;

    return (CallName){ record->epoch, record->rank, record->clock, record->n_adds };
}

/* By call and part; what was lost comes last; then by file, in the order of the file. */
static int compare_applied(const void *left, const void *right)
{
    const HistoryApplied *const a = left, *const b = right;
    const CallName name_a = name_of_applied(a), name_b = name_of_applied(b);
    const int order = call_name_compare(&name_a, &name_b);

    if (order != 0)
        return order;
    if (a->record.part != b->record.part)
        return a->record.part < b->record.part ? -1 : 1;
    if (a->is_lost != b->is_lost)
        return a->is_lost ? 1 : -1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->record.at < b->record.at ? -1 : a->record.at > b->record.at;
}

static int compare_calls(const void *left, const void *right, void *data)
{
    const History *const history = data;
    const CallName a = name_of_call(history, left), b = name_of_call(history, right);

    return call_name_compare(&a, &b);
}

/* ---- what servers have run ---- */

/* The records of one run of a call on a part: up to the last one. */
typedef struct {
    const HistoryApplied *records;
    guint n;
} CallRun;

/* The records from `first` on that belong to one run; n 0: it has not come to its end. */
static CallRun find_run(const HistoryApplied *first, guint n_left)
{
    for (guint i = 0; i < n_left && first[i].file == first->file; i++) {
        if (first[i].record.place != i)
            break;
        if (first[i].record.flags & RECORD_LAST)
            return (CallRun){ first, i + 1 };
    }
    return (CallRun){ first, 0 };
}

/* A row that a run has changed. */
typedef struct {
    uint64_t key;
    const uint8_t *row; /* before; the one after follows */
    uint64_t order;     /* among the changes of the run */
} Change;

static int compare_changes(const void *left, const void *right)
{
    const Change *const a = left, *const b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static size_t bytes_of_row(const HistoryTable *table)
{
    return record_row_bytes(&(RecordOwner){ .dtype = table->dtype, .width = table->width });
}

/* By key: copies of a part have them in any order. (transfer full) */
static GArray *list_changes(const HistoryTable *table, CallRun run)
{
    GArray *const changes = g_array_new(FALSE, FALSE, sizeof(Change));
    const size_t row_bytes = bytes_of_row(table);

    for (guint i = 0; i < run.n; i++) {
        const Record *const record = &run.records[i].record;

        for (uint32_t k = 0; k < record->n_keys; k++) {
            const Change change = { record_key(record, k), record->rows + 2 * k * row_bytes,
                                    changes->len };
            g_array_append_val(changes, change);
        }
    }
    g_array_sort(changes, compare_changes);
    return changes;
}

static bool are_alike(const HistoryTable *table, CallRun one, CallRun other)
{
    g_autoptr(GArray) a = list_changes(table, one);
    g_autoptr(GArray) b = list_changes(table, other);
    const size_t bytes = 2 * bytes_of_row(table);
    bool alike = a->len == b->len &&
                 one.records[one.n - 1].record.flags == other.records[other.n - 1].record.flags;

    for (guint i = 0; i < a->len && alike; i++) {
        const Change *const change = &g_array_index(a, Change, i);
        const Change *const same = &g_array_index(b, Change, i);

        alike = change->key == same->key && memcmp(change->row, same->row, bytes) == 0;
    }
    return alike;
}

/* Looks at all runs of a call on a part. Returns the one that counts; n 0: there is none. */
static CallRun judge_runs(const History *history, const HistoryTable *table, const CallName *name,
                          const HistoryApplied *records, guint n)
{
    CallRun counts = { records, 0 };
    const HistoryFile *file = NULL;

    for (guint i = 0; i < n;) {
        const CallRun run = find_run(&records[i], n - i);
        const HistoryApplied *const first = &records[i];

        i += MAX(run.n, 1);
        if (run.n == 0)
            continue;
        if (file == first->file)
            call_name_complain(history, table, "once", name,
                               "its call number %" G_GUINT64_FORMAT
                               " ran twice on part %u, on node %u",
                               name->number, first->record.part, first->node);
        else if (counts.n == 0)
            counts = run;
        else if (!first->is_lost && !are_alike(table, counts, run))
            call_name_complain(history, table, "alike", name,
                               "its call number %" G_GUINT64_FORMAT
                               " has changed other rows of part %u on node %u than on node %u",
                               name->number, first->record.part, first->node, counts.records->node);
        file = first->file;
    }
    return counts;
}

/* ---- what a call is to rows ---- */

static void add_entries(HistoryTable *table, const HistoryCall *call, CallRun run)
{
    g_autoptr(GArray) changes = list_changes(table, run);

    for (guint i = 0; i < changes->len; i++) {
        const Change *const change = &g_array_index(changes, Change, i);
        HistoryEntry entry = { .key = change->key,
                               .row = change->row,
                               .at = call->at,
                               .source = call->source,
                               .clock = (uint32_t)MIN(call->clock, UINT32_MAX),
                               .n_adds = (uint32_t)MIN(call->n_adds, UINT32_MAX),
                               .kind = RECORD_ADD,
                               .flags = ENTRY_CALL,
                               .process = call->process };

        history_add_entry(table, &entry);
        if (i > 0 && change[-1].key == change->key) /* what it has found is its own */
            continue;
        entry.kind = RECORD_GET;
        entry.flags = ENTRY_FOUND;
        history_add_entry(table, &entry);
    }
}

/* ---- joining ---- */

static const HistoryCall *find_call(const History *history, const HistoryTable *table,
                                    const CallName *name, guint *at)
{
    guint least = 0, most = table->calls->len;

    while (least < most) {
        const guint middle = (least + most) / 2;
        const HistoryCall *const call = &g_array_index(table->calls, HistoryCall, middle);
        const CallName found = name_of_call(history, call);
        const int order = call_name_compare(&found, name);

        *at = middle;
        if (order == 0)
            return call;
        if (order < 0)
            least = middle + 1;
        else
            most = middle;
    }
    return NULL;
}

static bool goes_to(const HistoryCall *call, uint32_t part)
{
    if (call->parts_run)
        return call->n_parts > 0 && part - call->parts[0] < call->n_parts;
    for (uint32_t i = 0; i < call->n_parts; i++)
        if (call->parts[i] == part)
            return true;
    return false;
}

/* Takes a call's runs on a part. n_run: for each call how many of its parts have run it. */
static void join(const History *history, HistoryTable *table, const HistoryApplied *records,
                 guint n, uint32_t *n_run)
{
    const CallName name = name_of_applied(records);
    const uint32_t part = records->record.part;
    const CallRun run = judge_runs(history, table, &name, records, n);
    guint at = 0;
    const HistoryCall *const call = find_call(history, table, &name, &at);

    if (run.n == 0)
        return;
    if (call != NULL && goes_to(call, part)) {
        n_run[at]++;
        if (table->sums)
            add_entries(table, call, run);
    } else if (history->n_missing == 0) {
        call_name_complain(history, table, "invented", &name,
                           "part %u has run its call number %" G_GUINT64_FORMAT
                           ", which it has not made there",
                           part, name.number);
    }
}

/* A call that has failed may have run on some parts. */
static void judge_lost(const History *history, const HistoryTable *table, const HistoryCall *call,
                       uint32_t n_run)
{
    const CallName name = name_of_call(history, call);
    const HistoryTask *const task = history_task(history, history_source(history, call->source));

    if (n_run >= call->n_parts || call->flags & RECORD_FAILED || history->n_missing > 0 ||
        (task != NULL && task->failed))
        return;
    call_name_complain(history, table, "once", &name,
                       "its call number %" G_GUINT64_FORMAT
                       " of handler %.*s is lost: it ran on %u of %u "
                       "parts",
                       call->number, (int)call->n_name, call->name != NULL ? call->name : "", n_run,
                       call->n_parts);
}

void history_join_calls(const History *history, HistoryTable *table)
{
    GArray *const applied = table->applied;
    g_autofree uint32_t *n_run = g_new0(uint32_t, MAX(table->calls->len, 1));

    if (table->n_handlers > 0 && table->unjudged == NULL)
        table->unjudged = "handlers have written to it, and nothing says what";
    for (guint i = 0; i < applied->len; i++) {
        HistoryApplied *const one = &g_array_index(applied, HistoryApplied, i);

        one->node = one->file->node;
        one->is_lost = history_is_lost(history, one->file);
    }
    g_array_sort(applied, compare_applied);
    g_array_sort_with_data(table->calls, compare_calls, (gpointer)(uintptr_t)history);
    for (guint i = 0, n; i < applied->len; i += n) {
        const HistoryApplied *const first = &g_array_index(applied, HistoryApplied, i);
        const CallName name = name_of_applied(first);

        for (n = 1; i + n < applied->len; n++) {
            const CallName next = name_of_applied(&first[n]);

            if (first[n].record.part != first->record.part || call_name_compare(&name, &next) != 0)
                break;
        }
        join(history, table, first, n, n_run);
    }
    for (guint i = 0; i < table->calls->len; i++)
        judge_lost(history, table, &g_array_index(table->calls, HistoryCall, i), n_run[i]);
}
