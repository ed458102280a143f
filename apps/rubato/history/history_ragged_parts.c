/* Judges what servers have run of the requests that write ragged rows.
 *
 * The holders of a part have run the same requests, each at the same place; a replica from where it
 * was made on. What a lost process says of a place counts if no other one has something there, and
 * only up to where the others have come: what it ran last, nobody else may have got. Of several
 * lost ones the one that came furthest is right, because a replica that took over went on.
 *
 * Each request ran once, and on the part to which it was sent. Those of a worker ran in its order;
 * under BSP those of a task by clock, worker, and the worker's order. After each of them the part's
 * rows have the bytes that follow.
 *
 * Threads: one. */
#include "apps/rubato/history/history_ragged_parts.h"

#include "apps/rubato/history/history_call_name.h"

/* ---- what is where ---- */

static CallName name_of(const History *history, const RaggedRequest *request)
{
    return call_name_of(history_source(history, request->source), request->clock, request->number);
}

static CallName name_of_ran(const RaggedRan *ran)
{
    const Record *const record = &ran->record;

    return (CallName){ record->epoch, record->rank, record->clock, record->n_adds };
}

static bool is_call(const RaggedRan *ran)
{
    return ran->record.n_adds > 0;
}

/* By part and order; the calls first; what was lost comes last, and of that first what came
 * furthest. */
static int compare_ran(const void *left, const void *right)
{
    const RaggedRan *const a = left, *const b = right;

    if (a->record.part != b->record.part)
        return a->record.part < b->record.part ? -1 : 1;
    if (a->record.order != b->record.order)
        return a->record.order < b->record.order ? -1 : 1;
    if (is_call(a) != is_call(b))
        return is_call(a) ? -1 : 1;
    if (a->is_lost != b->is_lost)
        return a->is_lost ? 1 : -1;
    if (a->reach != b->reach)
        return a->reach > b->reach ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->record.at < b->record.at ? -1 : a->record.at > b->record.at;
}

static int compare_by_file(const void *left, const void *right)
{
    const RaggedRan *const a = left, *const b = right;

    if (a->record.part != b->record.part)
        return a->record.part < b->record.part ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->record.order < b->record.order ? -1 : a->record.order > b->record.order;
}

/* Sorts what servers have run. */
static void sort_ran(const History *history, GArray *ran)
{
    uint64_t reach = 0;

    g_array_sort(ran, compare_by_file);
    for (guint i = ran->len; i-- > 0;) {
        RaggedRan *const one = &g_array_index(ran, RaggedRan, i);

        if (i + 1 == ran->len || one[1].file != one->file || one[1].record.part != one->record.part)
            reach = one->record.order;
        one->reach = reach;
        one->is_lost = history_is_lost(history, one->file);
    }
    g_array_sort(ran, compare_ran);
}

/* ---- one place ---- */

/* What the holders of a part say of one place. */
typedef struct {
    const RaggedRan *ran;
    guint n;
} Place;

static bool is_alike(const RaggedRan *a, const RaggedRan *b)
{
    const CallName of_a = name_of_ran(a), of_b = name_of_ran(b);

    return call_name_compare(&of_a, &of_b) == 0 &&
           (a->record.flags & RECORD_FAILED) == (b->record.flags & RECORD_FAILED);
}

static void compare_holders(const RaggedPart *part, Place place)
{
    const RaggedRan *const counts = place.ran;
    const CallName name = name_of_ran(counts);

    for (guint i = 1; i < place.n && is_call(&counts[i]); i++) {
        const RaggedRan *const other = &counts[i];

        if (other->is_lost || is_alike(counts, other))
            continue;
        call_name_complain(part->history, part->table, "alike", &name,
                           "its call number %" G_GUINT64_FORMAT " was number %" G_GUINT64_FORMAT
                           " of part %u on node %u; on node %u that was another one, or failed "
                           "otherwise",
                           name.number, counts->record.order, part->part, counts->file->node,
                           other->file->node);
    }
}

/* Whether the rows have the bytes that each holder says. */
static void compare_bytes(const RaggedPart *part, Place place, bool *was_told)
{
    for (guint i = 0; i < place.n; i++) {
        const RaggedRan *const ran = &place.ran[i];
        const CallName name = name_of_ran(place.ran);

        if (*was_told || ran->record.row_bytes == part->rows.n_bytes ||
            (ran->is_lost && !place.ran->is_lost && !is_alike(ran, place.ran)))
            continue;
        *was_told = true;
        if (!is_call(ran))
            call_name_complain(part->history, part->table, "alike", &name,
                               "part %u came to node %u with %" G_GUINT64_FORMAT
                               " bytes of rows, and the %" G_GUINT64_FORMAT
                               " calls before make %" G_GUINT64_FORMAT,
                               part->part, ran->file->node, ran->record.row_bytes,
                               ran->record.order, part->rows.n_bytes);
        else
            call_name_complain(part->history, part->table, "once", &name,
                               "after its call number %" G_GUINT64_FORMAT
                               " part %u has %" G_GUINT64_FORMAT
                               " bytes of rows on node %u, and the calls up to there make "
                               "%" G_GUINT64_FORMAT,
                               name.number, part->part, ran->record.row_bytes, ran->file->node,
                               part->rows.n_bytes);
    }
}

/* ---- the order ---- */

/* Whether the source's request ran behind those that it has made before. */
static void compare_order(const RaggedPart *part, const RaggedRequest *request,
                          const RaggedRequest *last_of_source, const RaggedRequest *last_of_task)
{
    const History *const history = part->history;
    const CallName name = name_of(history, request);

    if (last_of_source != NULL && last_of_source->n_adds > request->n_adds) {
        call_name_complain(history, part->table, "order", &name,
                           "part %u has run its call number %" G_GUINT64_FORMAT
                           " after a later one, of clock %" G_GUINT64_FORMAT
                           " and number %" G_GUINT64_FORMAT,
                           part->part, name.number, last_of_source->clock, last_of_source->number);
        return;
    }
    if (last_of_task == NULL || part->table->bound != BOUND_BSP || name.epoch == 0)
        return;
    const CallName before = name_of(history, last_of_task);
    if (before.clock > name.clock || (before.clock == name.clock && before.rank > name.rank))
        call_name_complain(history, part->table, "exact", &name,
                           "part %u has run its call number %" G_GUINT64_FORMAT
                           " after one of worker %u at clock %" G_GUINT64_FORMAT,
                           part->part, name.number, before.rank, before.clock);
}

/* The last one of that source, or task, that the part has run. */
static const RaggedRequest *find_last(const RaggedPart *part, GHashTable *last, uint64_t name)
{
    const gpointer place = g_hash_table_lookup(last, &name);

    return place == NULL ? NULL : g_ptr_array_index(part->run, GPOINTER_TO_UINT(place) - 1);
}

static void note_last(GHashTable *last, uint64_t name, guint place)
{
    g_hash_table_insert(last, g_memdup2(&name, sizeof name), GUINT_TO_POINTER(place + 1));
}

/* ---- a part ---- */

/* Up to where what is said of the part counts. */
static uint64_t find_end(const RaggedRan *ran, guint n)
{
    uint64_t end = 0;
    bool any = false;

    for (guint i = 0; i < n; i++)
        if (!ran[i].is_lost) {
            any = true;
            end = MAX(end, ran[i].record.order);
        }
    return any ? end : UINT64_MAX;
}

static RaggedRequest *find_write(const History *history, GPtrArray *writes, const CallName *name)
{
    guint least = 0, most = writes->len;

    while (least < most) {
        const guint middle = (least + most) / 2;
        RaggedRequest *const request = g_ptr_array_index(writes, middle);
        const CallName found = name_of(history, request);
        const int order = call_name_compare(&found, name);

        if (order == 0)
            return request;
        if (order < 0)
            least = middle + 1;
        else
            most = middle;
    }
    return NULL;
}

/* The part has run a request. False: what comes after it cannot be judged. */
static bool run(RaggedPart *part, Place place, GPtrArray *writes, GHashTable *last)
{
    const History *const history = part->history;
    const RaggedRan *const ran = place.ran;
    const CallName name = name_of_ran(ran);
    RaggedRequest *const request = find_write(history, writes, &name);
    const bool has_failed = ran->record.flags & RECORD_FAILED;

    if (request == NULL || request->part != part->part) {
        if (history->n_missing == 0)
            call_name_complain(history, part->table, "invented", &name,
                               "part %u has run its call number %" G_GUINT64_FORMAT
                               ", which it has not made there",
                               part->part, name.number);
        return false;
    }
    if (request->order > 0) {
        call_name_complain(history, part->table, "once", &name,
                           "its call number %" G_GUINT64_FORMAT
                           " ran twice on part %u, as its number %" G_GUINT64_FORMAT
                           " and %" G_GUINT64_FORMAT,
                           name.number, part->part, request->order, ran->record.order);
        return false;
    }
    request->order = ran->record.order;
    request->has_failed = has_failed;
    const uint64_t of_source = (uint64_t)1 << 32 | request->source, of_task = name.epoch;
    compare_order(part, request, find_last(part, last, of_source), find_last(part, last, of_task));
    note_last(last, of_source, part->run->len);
    note_last(last, of_task, part->run->len);
    g_ptr_array_add(part->run, request);
    if (!request->is_whole)
        return false;
    if (ragged_rows_run(&part->rows, request) != has_failed)
        call_name_complain(history, part->table, "once", &name,
                           "its call number %" G_GUINT64_FORMAT " has %s on part %u, and should %s",
                           name.number, has_failed ? "failed" : "been done", part->part,
                           has_failed ? "have been done" : "have failed");
    if (has_failed && !(request->flags & (RECORD_FAILED | RECORD_UNTOLD)))
        call_name_complain(history, part->table, "once", &name,
                           "its call number %" G_GUINT64_FORMAT
                           " has failed on part %u, and it was told that it was done",
                           name.number, part->part);
    return true;
}

static void complain_gap(const RaggedPart *part, const RaggedRan *next, uint64_t order)
{
    const CallName name = name_of_ran(next);

    if (part->history->n_missing == 0)
        call_name_complain(part->history, part->table, "order", &name,
                           "what part %u has run as its number %" G_GUINT64_FORMAT
                           " is in no file, and this is number %" G_GUINT64_FORMAT,
                           part->part, order, next->record.order);
}

static void replay(RaggedPart *part, const RaggedRan *ran, guint n, GPtrArray *writes)
{
    g_autoptr(GHashTable) last = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    const uint64_t end = find_end(ran, n);
    bool bytes_were_told = false;

    for (guint i = 0, n_here; i < n && !part->is_unjudged; i += n_here) {
        const uint64_t order = ran[i].record.order;

        for (n_here = 1; i + n_here < n && ran[i + n_here].record.order == order;)
            n_here++;
        const Place place = { &ran[i], n_here };
        if (order > end)
            break;
        if (is_call(place.ran) && order != part->run->len + 1) {
            complain_gap(part, place.ran, part->run->len + 1);
            part->is_unjudged = true;
            break;
        }
        if (is_call(place.ran)) {
            compare_holders(part, place);
            part->is_unjudged = !run(part, place, writes, last);
        }
        if (!part->is_unjudged && order == part->run->len)
            compare_bytes(part, place, &bytes_were_told);
    }
}

/* ---- the table ---- */

static void judge_part(RaggedPart *part, const RaggedRan *ran, guint n_ran, GPtrArray *writes,
                       RaggedRequest *const *reads, guint n_reads)
{
    ragged_rows_init(&part->rows, part->table->dtype);
    part->run = g_ptr_array_new();
    replay(part, ran, n_ran, writes);
    history_judge_ragged_reads(part, reads, n_reads);
    g_ptr_array_unref(part->run);
    ragged_rows_clear(&part->rows);
}

static int compare_writes(const void *left, const void *right, void *data)
{
    const History *const history = data;
    const CallName a = name_of(history, *(RaggedRequest *const *)left);
    const CallName b = name_of(history, *(RaggedRequest *const *)right);

    return call_name_compare(&a, &b);
}

static int compare_reads(const void *left, const void *right)
{
    const RaggedRequest *const a = *(RaggedRequest *const *)left;
    const RaggedRequest *const b = *(RaggedRequest *const *)right;

    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    return a < b ? -1 : a > b; /* as they were read */
}

static void judge_lost(const History *history, const HistoryTable *table,
                       const RaggedRequest *request)
{
    const HistorySource *const source = history_source(history, request->source);
    const HistoryTask *const task = history_task(history, source);
    const CallName name = name_of(history, request);

    if (request->order > 0 || request->flags & RECORD_FAILED || history->n_missing > 0 ||
        (task != NULL && task->failed))
        return;
    g_autofree char *said = ragged_name(history, request);
    call_name_complain(history, table, "once", &name,
                       "%s, its call number %" G_GUINT64_FORMAT
                       ", is lost: it did not run on part %u",
                       said, name.number, request->part);
}

static void judge_parts(RaggedPart *part, GPtrArray *writes, GPtrArray *reads)
{
    const GArray *const ran = part->table->ragged->ran;
    RaggedRequest *const *const read = (RaggedRequest *const *)reads->pdata;

    for (guint i = 0, k = 0, n_ran, n_reads; i < ran->len || k < reads->len;
         i += n_ran, k += n_reads) {
        const RaggedRan *const first = i < ran->len ? &g_array_index(ran, RaggedRan, i) : NULL;

        part->part = MIN(i < ran->len ? first->record.part : UINT32_MAX,
                         k < reads->len ? read[k]->part : UINT32_MAX);
        part->is_unjudged = false;
        for (n_ran = 0; i + n_ran < ran->len && first[n_ran].record.part == part->part;)
            n_ran++;
        for (n_reads = 0; k + n_reads < reads->len && read[k + n_reads]->part == part->part;)
            n_reads++;
        judge_part(part, first, n_ran, writes, n_reads == 0 ? NULL : &read[k], n_reads);
    }
}

void history_judge_ragged(const History *history, HistoryTable *table, HistoryCounts *counts)
{
    GArray *const requests = table->ragged->requests;
    RaggedPart part = { .history = history, .table = table, .counts = counts };
    g_autoptr(GPtrArray) writes = g_ptr_array_new();
    g_autoptr(GPtrArray) reads = g_ptr_array_new();

    history_open_ragged(history, table);
    sort_ran(history, table->ragged->ran);
    for (guint i = 0; i < requests->len; i++) {
        RaggedRequest *const request = &g_array_index(requests, RaggedRequest, i);

        g_ptr_array_add(ragged_writes(request) ? writes : reads, request);
    }
    g_ptr_array_sort_with_data(writes, compare_writes, (gpointer)(uintptr_t)history);
    g_ptr_array_sort(reads, compare_reads);
    judge_parts(&part, writes, reads);
    for (guint i = 0; i < writes->len; i++)
        judge_lost(history, table, g_ptr_array_index(writes, i));
}
