/* What BSP promises beyond windows: rows that are the same bit for bit.
 *
 * Threads: one. */
#include "apps/rubato/history/history_judge.h"

static bool is_same_row(const Judge *judge, const HistoryEntry *a, const HistoryEntry *b)
{
    return memcmp(a->row, b->row, row_bytes(judge)) == 0;
}

/* In the order in which BSP applies them. */
static int compare_by_clock(const void *left, const void *right, void *data)
{
    const HistoryEntry *const a = left, *const b = right;
    const Judge *const judge = data;
    const HistorySource *const of_a = history_source(judge->history, a->source);
    const HistorySource *const of_b = history_source(judge->history, b->source);

    if (of_a->epoch != of_b->epoch)
        return of_a->epoch < of_b->epoch ? -1 : 1;
    if (a->clock != b->clock)
        return a->clock < b->clock ? -1 : 1;
    if (of_a->rank != of_b->rank)
        return of_a->rank < of_b->rank ? -1 : 1;
    if (a->n_adds != b->n_adds)
        return a->n_adds < b->n_adds ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

void judge_same(Judge *judge)
{
    g_autofree HistoryEntry *gets = g_new(HistoryEntry, judge->n_gets);
    size_t n = 0;

    for (size_t i = 0; i < judge->n_gets; i++)
        if (!(judge->gets[i].flags & (ENTRY_FOUND | ENTRY_REPEATED)))
            gets[n++] = judge->gets[i];
    g_qsort_with_data(gets, (int)n, sizeof *gets, compare_by_clock, judge);
    for (size_t i = 1; i < n; i++) {
        const HistorySource *const a = history_source(judge->history, gets[i - 1].source);
        const HistorySource *const b = history_source(judge->history, gets[i].source);
        if (a->rank != RECORD_ENGINE && a->epoch == b->epoch &&
            gets[i - 1].clock == gets[i].clock && !is_same_row(judge, &gets[i - 1], &gets[i]))
            judge_complain(judge, "same", &gets[i],
                           "it shows other bits than a Get of worker %u at the same clock",
                           a->rank);
    }
}

static bool has_bits(const Judge *judge, const uint8_t *seen, const double *row)
{
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        const double value = read_value(judge, seen, c).real;

        if (value != row[c] && !(isnan(value) && isnan(row[c])))
            return false;
    }
    return true;
}

/* An Add, or a call, which has found the row as it is. */
static void apply(const Judge *judge, const HistoryEntry *add, double *row)
{
    const bool is_call = add->flags & ENTRY_CALL;

    if (is_call && !has_bits(judge, add->row, row))
        judge_complain(judge, "exact", add,
                       "what its call has found differs by its last bits from the Adds before it, "
                       "in the order of clocks and workers");
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        if (is_call)
            row[c] = read_value(judge, row_after(judge, add), c).real;
        else
            row[c] += read_value(judge, add->row, c).real;
        if (judge->table->dtype == RUBATO_F32)
            row[c] = (double)(float)row[c];
    }
}

void judge_bits(Judge *judge)
{
    const uint32_t n = judge->n_columns;
    double row[JUDGE_MOST_COLUMNS];
    size_t at = 0;

    for (guint i = 0; i < judge->runs->len; i++)
        if (g_array_index(judge->runs, Run, i).source->rank == RECORD_ENGINE)
            return;
    g_autofree HistoryEntry *adds = g_memdup2(judge->adds, judge->n_adds * sizeof *adds);
    g_autofree HistoryEntry *gets = g_memdup2(judge->gets, judge->n_gets * sizeof *gets);
    g_qsort_with_data(adds, (int)judge->n_adds, sizeof *adds, compare_by_clock, judge);
    g_qsort_with_data(gets, (int)judge->n_gets, sizeof *gets, compare_by_clock, judge);
    for (uint32_t c = 0; c < n; c++)
        row[c] = judge->base[c].real;
    for (size_t i = 0; i < judge->n_gets; i++) {
        const HistorySource *const reader = history_source(judge->history, gets[i].source);

        if (reader->rank == RECORD_ENGINE || gets[i].flags & (ENTRY_FOUND | ENTRY_REPEATED))
            continue;
        while (at < judge->n_adds) {
            const HistorySource *const adder = history_source(judge->history, adds[at].source);
            if (adder->epoch > reader->epoch ||
                (adder->epoch == reader->epoch && adds[at].clock >= gets[i].clock))
                break;
            apply(judge, &adds[at++], row);
        }
        if (!has_bits(judge, gets[i].row, row))
            judge_complain(
                judge, "exact", &gets[i],
                "it differs by its last bits from the Adds of all clocks before, in the order "
                "of clocks and workers");
    }
}
