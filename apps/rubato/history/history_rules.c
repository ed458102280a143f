/* What a Get may show.
 *
 * A row is the sum of its first value and of the Adds that a Get sees. The Adds of one worker to a
 * key take effect in their order, so what a Get sees of a worker is a beginning of its Adds: at
 * least those that the rules demand, at most those that they allow. This gives a window for each
 * worker. A row is right if it is the sum that some choice within the windows gives, in all of its
 * columns together. Under BSP, and once all tasks are over, each window holds one choice.
 *
 * Integers are compared exactly, floats too as long as all sums are whole numbers that they hold
 * exactly, and under BSP always, because the order of the Adds is given there. Other sums of floats
 * may differ by what rounding can do in any order.
 *
 * Threads: one. */
#include "apps/rubato/history/history_judge.h"

#include <rubato/mix.h>

enum {
    MOST_TRIED = 1000,    /* Adds of a worker that may be what is wrong */
    MOST_EXPLAINED = 100, /* wrong rows of a table; of others it says only that they are wrong */
};

/* ---- complaints ---- */

/* What is wrong with a row that a call has found. (text: transfer full) (transfer full) */
static char *found_by_call(const Judge *judge, const HistoryEntry *get, char *text)
{
    g_autofree char *said = text;
    g_autofree char *name = history_name_call(judge->table, get->source, get->n_adds);

    return g_strdup_printf("what its call of handler %s has found: %s", name, said);
}

void judge_complain(const Judge *judge, const char *rule, const HistoryEntry *get,
                    const char *format, ...)
{
    const History *const history = judge->history;
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (get->flags & ENTRY_FOUND)
        text = found_by_call(judge, get, g_steal_pointer(&text));
    history->complain(history->user, rule, judge->table, history_source(history, get->source),
                      get->clock, &judge->key, text);
}

static char *name_add(const Judge *judge, const HistoryEntry *add)
{
    const HistorySource *const source = history_source(judge->history, add->source);
    g_autofree char *call =
        add->flags & ENTRY_CALL ? history_name_call(judge->table, add->source, add->n_adds) : NULL;

    if (call != NULL)
        return source->rank == RECORD_ENGINE
                   ? g_strdup_printf("a call of handler %s of the engine of node %u", call,
                                     source->node)
                   : g_strdup_printf("call %u of worker %u at clock %u, of handler %s", add->n_adds,
                                     source->rank, add->clock, call);
    return source->rank == RECORD_ENGINE
               ? g_strdup_printf("an Add of the engine of node %u", source->node)
               : g_strdup_printf("Add %u of worker %u at clock %u", add->n_adds, source->rank,
                                 add->clock);
}

/* ---- what is wrong with it ---- */

/* Whether the row becomes right when the Get need not see so much of one worker. Says so. */
static bool blame_missing(Judge *judge, const HistoryEntry *get)
{
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        const size_t least = run->least, most = run->most;
        const bool is_own = run->adds[0].source == get->source;

        for (size_t n = least; n-- > 0 && least - n <= MOST_TRIED;) {
            run->least = run->most = n;
            if (judge_explain(judge, get) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &run->adds[n]);
            const HistorySource *const reader = history_source(judge->history, get->source);
            const bool is_over = reader->rank == RECORD_ENGINE;
            if (is_own && judge->table->bound != BOUND_BSP)
                judge_complain(judge, "own", get, "its worker does not see its own %s", add);
            else if (is_over)
                judge_complain(judge, "once", get, "%s is lost", add);
            else if (judge->table->bound == BOUND_BSP)
                judge_complain(judge, "exact", get, "%s is missing, which BSP has it see", add);
            else
                judge_complain(judge, "bound", get, "%s is missing, which staleness %u has it see",
                               add, judge->table->staleness);
            return true;
        }
        run->least = least;
        run->most = most;
    }
    return false;
}

/* The same when it may see more of one worker than the rules allow. */
static bool blame_early(Judge *judge, const HistoryEntry *get)
{
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        const size_t least = run->least, most = run->most;

        for (size_t n = most + 1; n <= run->n && n - most <= MOST_TRIED; n++) {
            run->least = run->most = n;
            if (judge_explain(judge, get) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &run->adds[n - 1]);
            judge_complain(judge, judge->table->bound == BOUND_BSP ? "exact" : "early", get,
                           "it shows %s, which was made later", add);
            return true;
        }
        run->least = least;
        run->most = most;
    }
    return false;
}

/* One Add is in it once too often, or not at all. */
static bool blame_one(Judge *judge, const HistoryEntry *get)
{
    Number left[JUDGE_MOST_COLUMNS], with[JUDGE_MOST_COLUMNS];

    judge_find_left(judge, get->row, left);
    for (size_t i = 0; i < judge->n_adds && i < MOST_TRIED; i++)
        for (int twice = 1; twice >= 0; twice--) {
            for (uint32_t c = 0; c < judge->n_columns; c++) {
                const Number delta = read_delta(judge, &judge->adds[i], c);
                with[c] = twice ? minus(judge, left[c], delta) : plus(judge, left[c], delta);
            }
            if (judge_explain_left(judge, with) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &judge->adds[i]);
            judge_complain(judge, "once", get, twice ? "it shows %s twice" : "%s is lost", add);
            return true;
        }
    return false;
}

static void blame(Judge *judge, const HistoryEntry *get)
{
    Number left[JUDGE_MOST_COLUMNS];

    if (judge->n_blamed++ < MOST_EXPLAINED &&
        (blame_missing(judge, get) || blame_early(judge, get) || blame_one(judge, get)))
        return;
    judge_set_windows(judge, get);
    judge_find_left(judge, get->row, left);
    for (uint32_t c = 0; c < judge->n_columns; c++)
        if (!is_nothing(judge, left[c]) || c + 1 == judge->n_columns) {
            const double value = as_real(judge, read_value(judge, get->row, c));
            judge_complain(
                judge, "invented", get,
                "it shows %.17g in column %u, and no choice of the Adds that it may see gives "
                "that: the least of them make %.17g",
                value, c, value - as_real(judge, left[c]));
            return;
        }
}

/* ---- the key ---- */

static void find_runs(Judge *judge)
{
    Number sum[JUDGE_MOST_COLUMNS];

    g_array_set_size(judge->runs, 0);
    g_array_set_size(judge->sums, 0);
    for (size_t i = 0; i < judge->n_adds; i++) {
        const HistoryEntry *const add = &judge->adds[i];

        if (i == 0 || add->source != add[-1].source) {
            const Run run = { .adds = add, .source = history_source(judge->history, add->source) };
            g_array_append_val(judge->runs, run);
            memset(sum, 0, sizeof sum);
            g_array_append_vals(judge->sums, sum, judge->n_columns);
        }
        for (uint32_t c = 0; c < judge->n_columns; c++)
            sum[c] = plus(judge, sum[c], read_delta(judge, add, c));
        g_array_append_vals(judge->sums, sum, judge->n_columns);
        Run *const run = &g_array_index(judge->runs, Run, judge->runs->len - 1);
        run->n_sure += run->n_sure == run->n && !(add->flags & RECORD_FAILED);
        run->n++;
    }
    const Number *sums = (const Number *)(const void *)judge->sums->data;
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        run->sums = sums;
        sums += (run->n + 1) * judge->n_columns;
    }
}

/* Of the numbers of a call's rows, which were rounded. */
static double size_of_call(const Judge *judge, const HistoryEntry *call)
{
    const double before = as_real(judge, read_value(judge, call->row, 0));
    const double after = as_real(judge, read_value(judge, row_after(judge, call), 0));

    return fabs(before) + fabs(after);
}

/* What can be said of all deltas, and how far sums of them may be off. */
static void look_at_deltas(Judge *judge)
{
    const double unit = judge->is_number || judge->table->dtype == RUBATO_F64 ? 0x1p-53 : 0x1p-24;
    double size = 0;
    bool whole = !judge->is_number || !judge->is_real;

    judge->never_falls = judge->all_same = true;
    for (size_t i = 0; i < judge->n_adds; i++) {
        double most = 0;
        for (uint32_t c = 0; c < judge->n_columns; c++) {
            const double value = as_real(judge, read_delta(judge, &judge->adds[i], c));
            judge->never_falls &= value >= 0;
            whole &= value == rint(value);
            const double size_of_value = fabs(value);
            most = MAX(most, size_of_value);
        }
        size += most;
        if (judge->adds[i].flags & ENTRY_CALL) {
            judge->all_same = false;
            size += judge->is_number ? size_of_call(judge, &judge->adds[i]) : 0;
            continue;
        }
        judge->all_same &= memcmp(judge->adds[i].row, judge->adds[0].row, row_bytes(judge)) == 0;
    }
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        const double value = as_real(judge, judge->base[c]);
        whole &= value == rint(value);
        size += fabs(value);
    }
    const bool is_exact = !judge->is_real || (whole && size * unit < 1);
    /* a row and its number were rounded once more for each Add */
    const double row_unit = judge->is_number && judge->table->dtype == RUBATO_F32 ? 0x1p-24 : unit;
    judge->error = is_exact ? 0 : 2 * size * row_unit * (double)(judge->n_adds + 2);
    if (!judge->is_real && judge->is_number)
        judge->never_falls = false; /* such numbers wrap around */
}

/* Whether the Get sees all Adds there are. */
static bool sees_all(const Judge *judge)
{
    for (guint i = 0; i < judge->runs->len; i++)
        if (g_array_index(judge->runs, Run, i).least < g_array_index(judge->runs, Run, i).n)
            return false;
    return true;
}

/* The rows were set between tasks, before all Adds and all Gets: what was set last is the first
 * value. */
static bool find_base_of_sets(Judge *judge)
{
    const HistoryEntry *const last = &judge->sets[judge->n_sets - 1];
    uint64_t phase = 0;

    for (size_t i = 0; i < judge->n_sets; i++) {
        phase = MAX(phase, judge->sets[i].clock);
        if (judge->sets[i].source != last->source || judge->sets[i].row == NULL)
            return false;
    }
    for (guint i = 0; i < judge->runs->len; i++) {
        const Run *const run = &g_array_index(judge->runs, Run, i);
        const HistoryTask *const task = history_task(judge->history, run->source);
        if ((task != NULL ? task->begun_first : run->adds[0].clock) <= phase)
            return false;
    }
    for (size_t i = 0; i < judge->n_gets; i++) {
        const HistorySource *const reader = history_source(judge->history, judge->gets[i].source);
        const HistoryTask *const task = history_task(judge->history, reader);
        if ((task != NULL ? task->begun_first : judge->gets[i].clock) <= phase)
            return false;
    }
    for (uint32_t c = 0; c < judge->n_columns; c++)
        judge->base[c] = read_value(judge, last->row, c);
    return true;
}

/* The same weights as those of the format. */
static Number constant_of_row(const Judge *judge)
{
    double real = 0;
    uint64_t whole = 0;

    for (uint32_t i = 0; i < judge->table->width; i++) {
        const uint64_t weight = rubato_mix64(i + 1) | 1;
        real += (1 + (double)(weight >> 12) * 0x1p-52) * judge->table->constant;
        whole += weight * (uint64_t)(int64_t)judge->table->constant;
    }
    return judge->is_real ? (Number){ .real = real } : (Number){ .whole = whole };
}

static bool find_base(Judge *judge)
{
    memset(judge->base, 0, sizeof judge->base);
    if (judge->n_sets > 0)
        return find_base_of_sets(judge);
    if (judge->table->has_constant) {
        const double value = judge->table->constant;
        const float f32 = (float)value;
        for (uint32_t c = 0; c < judge->n_columns; c++)
            judge->base[c] =
                judge->is_number ? constant_of_row(judge)
                : !judge->is_real
                    ? (Number){ .whole = (uint64_t)(int64_t)value }
                    : (Number){ .real = judge->table->dtype == RUBATO_F32 ? (double)f32 : value };
        return true;
    }
    /* What a row began with is what it ended with, less all Adds. */
    for (size_t i = 0; i < judge->n_gets; i++) {
        judge_set_windows(judge, &judge->gets[i]);
        if (sees_all(judge)) {
            judge_find_left(judge, judge->gets[i].row, judge->base);
            return true;
        }
    }
    return false;
}

/* ---- all of it ---- */

/* No worker sees less of a row that only grows than it saw before. But what a process in the place
 * of a lost one asks again may be answered as it was then. */
static void judge_going_back(Judge *judge, const HistoryEntry *get)
{
    const HistoryEntry *last = get;

    if (judge->table->bound == BOUND_ASP && get->process > 0)
        return;
    do {
        if (last == judge->gets)
            return;
        last--;
    } while (last->flags & ENTRY_FOUND);
    if (last->source != get->source || !judge->never_falls ||
        (get->flags | last->flags) & (RECORD_OF_TICKET | ENTRY_FOUND))
        return;
    const double before = as_real(judge, read_value(judge, last->row, 0));
    const double now = as_real(judge, read_value(judge, get->row, 0));
    if (now < before - judge->error)
        judge_complain(judge, "back", get, "it shows %.17g, and its worker has seen %.17g before",
                       now, before);
}

static void judge_key(Judge *judge)
{
    const HistoryTable *const table = judge->table;

    if (judge->n_gets > 0 && table->bound == BOUND_BSP)
        judge_same(judge);
    find_runs(judge);
    if (judge->n_gets == 0 || table->unjudged != NULL || !table->sums ||
        judge->history->n_missing > 0 || !find_base(judge)) {
        judge->counts->n_unjudged += judge->n_gets;
        return;
    }
    look_at_deltas(judge);
    if (!isfinite(judge->error)) {
        judge->counts->n_unjudged += judge->n_gets;
        return;
    }
    for (size_t i = 0; i < judge->n_gets; i++) {
        const HistoryEntry *const get = &judge->gets[i];

        judge->counts->n_rows++;
        judge_set_windows(judge, get);
        const Answer answer = judge_explain(judge, get);
        judge->counts->n_undecided += answer == ANSWER_UNKNOWN;
        if (answer == ANSWER_NO)
            blame(judge, get);
        else
            judge_going_back(judge, get);
    }
    if (table->bound == BOUND_BSP && judge->is_real && !judge->is_number && judge->error > 0)
        judge_bits(judge);
}

void history_judge(const History *history, HistoryTable *table, HistoryCounts *counts)
{
    const bool is_real = table->dtype == RUBATO_F32 || table->dtype == RUBATO_F64;
    const bool is_number = rubato_dtype_size(table->dtype) * table->width > 64;
    Judge judge = {
        .history = history,
        .table = table,
        .counts = counts,
        .is_real = is_real,
        .is_number = is_number,
        .n_columns = is_number ? 1 : table->width,
        .runs = g_array_new(FALSE, FALSE, sizeof(Run)),
        .sums = g_array_new(FALSE, FALSE, sizeof(Number)),
    };

    history_sort(table);
    for (size_t i = 0; i < table->n_entries;) {
        const HistoryEntry *const first = &table->entries[i];
        size_t n[RECORD_SET + 1] = { 0 };

        for (; i < table->n_entries && table->entries[i].key == first->key; i++)
            n[table->entries[i].kind]++;
        judge.key = first->key;
        judge.gets = first;
        judge.n_gets = n[RECORD_GET];
        judge.adds = judge.gets + judge.n_gets;
        judge.n_adds = n[RECORD_ADD];
        judge.sets = judge.adds + judge.n_adds;
        judge.n_sets = n[RECORD_SET];
        judge_key(&judge);
    }
    g_array_unref(judge.runs);
    g_array_unref(judge.sums);
}
