/* What requests that read ragged rows may have seen.
 *
 * Such a request shows a part as it was between two of the requests that the part has run: all of
 * its rows at the same place. The rules give the first place that it may show, and the last one:
 * those of history_windows.c, by the requests of each source. What a worker reads first shows no
 * later place than what it reads next. So the first place that fits is taken.
 *
 * Threads: one. */
#include "apps/rubato/history/history_ragged_parts.h"

enum {
    MOST_EXPLAINED = 5, /* rows of a part that show no state */
    MOST_WRITES = 64,   /* of such a row, for each of which it is tried */
};

typedef struct {
    const RaggedPart *part;
    Judge judge;           /* for the windows: a run for each source */
    HistoryEntry *entries; /* of the part's requests, by source */
    uint64_t *orders;      /* of these */
    GHashTable *last;      /* source → what it has read last */
    guint n_explained;
} Reads;

/* The places that a request may show. */
typedef struct {
    uint64_t least, most;
    uint64_t least_of_rules; /* without what it has read before */
} Window;

typedef struct {
    uint64_t place;
    uint16_t process;
} LastRead;

/* ---- names ---- */

char *ragged_name(const History *history, const RaggedRequest *request)
{
    static const char *const names[] = {
        [RAGGED_LENGTHS] = "lengths", [RAGGED_GET] = "get",       [RAGGED_ADD] = "add",
        [RAGGED_ASSIGN] = "assign",   [RAGGED_APPEND] = "append", [RAGGED_ERASE] = "erase",
    };
    const HistorySource *const source = history_source(history, request->source);
    const char *const name = names[request->op];

    return source->rank == RECORD_ENGINE
               ? g_strdup_printf("an %s of the engine of node %u", name, source->node)
               : g_strdup_printf("%s %" G_GUINT64_FORMAT
                                 " of worker %u at clock %" G_GUINT64_FORMAT,
                                 name, request->n_adds, source->rank, request->clock);
}

static const RaggedRequest *run_at(const Reads *reads, uint64_t order)
{
    return g_ptr_array_index(reads->part->run, order - 1);
}

/* ---- windows ---- */

static HistoryEntry entry_of(const RaggedRequest *request)
{
    const bool is_sure = request->has_failed || !(request->flags & RECORD_FAILED);

    return (HistoryEntry){ .source = request->source,
                           .clock = (uint32_t)MIN(request->clock, UINT32_MAX),
                           .n_adds = (uint32_t)MIN(request->n_adds, UINT32_MAX),
                           .at = request->at,
                           .flags =
                               (uint8_t)((request->flags & (RECORD_OF_TICKET | ENTRY_REPEATED)) |
                                         (is_sure ? 0 : RECORD_FAILED)),
                           .process = request->process };
}

static int compare_requests(const void *left, const void *right)
{
    const RaggedRequest *const a = *(RaggedRequest *const *)left;
    const RaggedRequest *const b = *(RaggedRequest *const *)right;

    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->n_adds != b->n_adds)
        return a->n_adds < b->n_adds ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static void find_runs(Reads *reads)
{
    const GPtrArray *const run = reads->part->run;
    g_autofree RaggedRequest **by_source = g_memdup2(run->pdata, run->len * sizeof(gpointer));
    Judge *const judge = &reads->judge;

    if (run->len > 0)
        qsort(by_source, run->len, sizeof *by_source, compare_requests);
    reads->entries = g_new(HistoryEntry, MAX(run->len, 1));
    reads->orders = g_new(uint64_t, MAX(run->len, 1));
    for (guint i = 0; i < run->len; i++) {
        const RaggedRequest *const request = by_source[i];

        reads->entries[i] = entry_of(request);
        reads->orders[i] = request->order;
        if (i == 0 || request->source != by_source[i - 1]->source) {
            const Run of_source = { .adds = &reads->entries[i],
                                    .source =
                                        history_source(reads->part->history, request->source) };
            g_array_append_val(judge->runs, of_source);
        }
        Run *const last = &g_array_index(judge->runs, Run, judge->runs->len - 1);
        last->n_sure += last->n_sure == last->n && !(reads->entries[i].flags & RECORD_FAILED);
        last->n++;
    }
}

static const uint64_t *orders_of(const Reads *reads, const Run *run)
{
    return &reads->orders[run->adds - reads->entries];
}

static Window find_window(const Reads *reads, const RaggedRequest *request)
{
    const HistoryEntry entry = entry_of(request);
    Window window = { .most = reads->part->run->len };

    judge_set_windows(&reads->judge, &entry);
    for (guint i = 0; i < reads->judge.runs->len; i++) {
        const Run *const run = &g_array_index(reads->judge.runs, Run, i);

        const uint64_t *const orders = orders_of(reads, run);

        if (run->least > 0)
            window.least = MAX(window.least, orders[run->least - 1]);
        if (run->most < run->n)
            window.most = MIN(window.most, orders[run->most] - 1);
    }
    window.most = MAX(window.most, window.least);
    window.least_of_rules = window.least;
    return window;
}

/* ---- which place it shows ---- */

/* The first place from `place` on, and at most `most`, at which the row is what the request has
 * seen; UINT64_MAX: there is none. */
static uint64_t find_place(const Reads *reads, const RaggedRequest *request, uint32_t i,
                           uint64_t place, uint64_t most)
{
    const RaggedRow *const row = ragged_rows_find(&reads->part->rows, ragged_key(request, i));
    const RaggedState empty = ragged_empty_state();

    if (row == NULL)
        return ragged_sees_state(request, i, &empty) ? place : UINT64_MAX;
    for (guint at = ragged_row_state_at(row, place); at < row->states->len; at++) {
        const RaggedState *const state = &g_array_index(row->states, RaggedState, at);

        if (state->order > most)
            break;
        if (ragged_sees_state(request, i, state))
            return MAX(place, state->order);
    }
    return UINT64_MAX;
}

/* The same for all of its rows together. */
static uint64_t find_common_place(const Reads *reads, const RaggedRequest *request, uint64_t place,
                                  uint64_t most)
{
    for (uint32_t i = 0, n_same = 0; n_same < request->n_keys; i = (i + 1) % request->n_keys) {
        const uint64_t found = find_place(reads, request, i, place, most);

        if (found == UINT64_MAX)
            return UINT64_MAX;
        n_same = found == place ? n_same + 1 : 1;
        place = found;
    }
    return place;
}

/* ---- what is wrong with it ---- */

static void complain(Reads *reads, const char *rule, const RaggedRequest *request, uint32_t i,
                     const char *format, ...) G_GNUC_PRINTF(5, 6);
static void complain(Reads *reads, const char *rule, const RaggedRequest *request, uint32_t i,
                     const char *format, ...)
{
    const HistoryEntry entry = entry_of(request);
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    reads->judge.key = ragged_key(request, i);
    judge_complain(&reads->judge, rule, &entry, "%s", text);
}

/* The row shows an earlier place: says which request is missing, and why it has to see that. */
static void blame_missing(Reads *reads, const RaggedRequest *request, uint32_t i,
                          const Window *window, uint64_t place)
{
    const HistoryTable *const table = reads->part->table;
    const RaggedRow *const row = ragged_rows_find(&reads->part->rows, ragged_key(request, i));
    const bool is_engine =
        history_source(reads->part->history, request->source)->rank == RECORD_ENGINE;
    const guint at = ragged_row_state_at(row, place) + 1;
    const RaggedRequest *const next =
        run_at(reads, g_array_index(row->states, RaggedState, at).order);
    g_autofree char *name = ragged_name(reads->part->history, next);

    if (next->order > window->least_of_rules)
        complain(reads, "back", request, i,
                 "it does not show %s, which its worker has seen before on this part", name);
    else if (next->source == request->source && table->bound != BOUND_BSP)
        complain(reads, "own", request, i, "its worker does not see its own %s", name);
    else if (is_engine)
        complain(reads, "once", request, i, "%s is lost", name);
    else if (table->bound == BOUND_BSP)
        complain(reads, "exact", request, i, "%s is missing, which BSP has it see", name);
    else
        complain(reads, "bound", request, i, "%s is missing, which staleness %u has it see", name,
                 table->staleness);
}

/* The row as it would be if the request at `changed` had run n times. */
static bool would_show(const Reads *reads, const RaggedRequest *request, uint32_t i,
                       const RaggedRow *row, guint changed, int n, const Window *window)
{
    RaggedRows rows;
    bool shows = false;

    ragged_rows_init(&rows, reads->part->rows.dtype);
    for (guint at = 1; at < row->states->len && !shows; at++) {
        const uint64_t order = g_array_index(row->states, RaggedState, at).order;

        if (order > window->most)
            break;
        for (int times = at == changed ? n : 1; times > 0; times--)
            (void)ragged_rows_run(&rows, run_at(reads, order));
        const RaggedRow *const made = ragged_rows_find(&rows, row->key);
        const RaggedState empty = ragged_empty_state();
        const RaggedState *const state =
            made == NULL ? &empty
                         : &g_array_index(made->states, RaggedState, made->states->len - 1);

        shows = at >= changed && ragged_sees_state(request, i, state);
    }
    ragged_rows_clear(&rows);
    return shows;
}

/* One request is in it twice, or not at all. */
static bool blame_one(Reads *reads, const RaggedRequest *request, uint32_t i, const Window *window)
{
    const RaggedRow *const row = ragged_rows_find(&reads->part->rows, ragged_key(request, i));
    const guint n = row == NULL ? 0 : row->states->len;

    if (n > MOST_WRITES || reads->n_explained++ >= MOST_EXPLAINED)
        return false;
    for (guint at = n; at-- > 1;)
        for (int times = 2; times >= 0; times -= 2) {
            if (!would_show(reads, request, i, row, at, times, window))
                continue;
            g_autofree char *name =
                ragged_name(reads->part->history,
                            run_at(reads, g_array_index(row->states, RaggedState, at).order));
            complain(reads, "once", request, i, times == 2 ? "it shows %s twice" : "%s is lost",
                     name);
            return true;
        }
    return false;
}

/* Whether the row is at none of the places that the request may show. */
static bool blame_row(Reads *reads, const RaggedRequest *request, uint32_t i, const Window *window)
{
    const uint64_t end = reads->part->run->len;
    const bool is_bsp = reads->part->table->bound == BOUND_BSP;

    if (find_place(reads, request, i, window->least, window->most) != UINT64_MAX)
        return false;
    const uint64_t place = find_place(reads, request, i, 0, end);
    if (place < window->least) {
        blame_missing(reads, request, i, window, place);
    } else if (place != UINT64_MAX) {
        g_autofree char *name = ragged_name(reads->part->history, run_at(reads, place));
        complain(reads, is_bsp ? "exact" : "early", request, i, "it shows %s, which was made later",
                 name);
    } else if (!blame_one(reads, request, i, window)) {
        complain(
            reads, "invented", request, i,
            "it shows a row of %u values that it has not been after any of the %" G_GUINT64_FORMAT
            " requests of part %u",
            ragged_length(request, i), end, reads->part->part);
    }
    return true;
}

static void blame(Reads *reads, const RaggedRequest *request, const Window *window)
{
    for (uint32_t i = 0; i < request->n_keys; i++)
        if (blame_row(reads, request, i, window))
            return;
    complain(reads, "whole", request, 0,
             "its %u rows of part %u have been so, but never all of them at the same time",
             request->n_keys, reads->part->part);
}

/* ---- all of them ---- */

static void judge_read(Reads *reads, const RaggedRequest *request)
{
    const gpointer source = GUINT_TO_POINTER(request->source);
    const bool is_engine =
        history_source(reads->part->history, request->source)->rank == RECORD_ENGINE;
    const bool is_in_order = !is_engine && !(request->flags & RECORD_OF_TICKET);
    LastRead *last = g_hash_table_lookup(reads->last, source);
    Window window = find_window(reads, request);

    if (is_in_order && last != NULL && last->process == request->process)
        window.least = MIN(MAX(window.least, last->place), window.most);
    const uint64_t place = find_common_place(reads, request, window.least, window.most);
    if (place == UINT64_MAX) {
        blame(reads, request, &window);
        return;
    }
    if (!is_in_order)
        return;
    if (last == NULL) {
        last = g_new(LastRead, 1);
        g_hash_table_insert(reads->last, source, last);
    }
    *last = (LastRead){ place, request->process };
}

void history_judge_ragged_reads(const RaggedPart *part, RaggedRequest *const *requests, guint n)
{
    const bool is_unjudged =
        part->is_unjudged || part->history->n_missing > 0 || part->table->unjudged != NULL;
    Reads reads = { .part = part,
                    .judge = { .history = part->history,
                               .table = part->table,
                               .runs = g_array_new(FALSE, FALSE, sizeof(Run)) },
                    .last = g_hash_table_new_full(NULL, NULL, NULL, g_free) };

    find_runs(&reads);
    for (guint i = 0; i < n; i++) {
        if (is_unjudged || !requests[i]->is_whole) {
            part->counts->n_unjudged += requests[i]->n_keys;
            continue;
        }
        part->counts->n_rows += requests[i]->n_keys;
        judge_read(&reads, requests[i]);
    }
    g_array_unref(reads.judge.runs);
    g_hash_table_unref(reads.last);
    g_free(reads.entries);
    g_free(reads.orders);
}
