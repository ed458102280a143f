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
#include "apps/rubato/history_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rubato/mix.h>

enum { MOST_COLUMNS = 16, MOST_STEPS = 5000 };

/* A value of a row, or a sum: `real` of floats, `whole` of integers, modulo 2^64. */
typedef union {
    double real;
    uint64_t whole;
} Number;

/* The Adds of one source to the key, and how many of them a Get sees. */
typedef struct {
    const HistoryEntry *adds;
    size_t n;
    const HistorySource *source;
    const Number *sums; /* n + 1 rows: of the first 0, 1, … Adds */
    size_t least, most;
} Run;

typedef struct {
    const History *history;
    const HistoryTable *table;
    HistoryCounts *counts;
    bool is_real, is_number; /* is_number: a number stands for the row */
    uint32_t n_columns;

    /* of the present key */
    uint64_t key;
    const HistoryEntry *gets, *adds, *sets;
    size_t n_gets, n_adds, n_sets;
    GArray *runs; /* of Run */
    GArray *sums; /* of Number */
    Number base[MOST_COLUMNS];
    double error;     /* by which sums may be wrong */
    bool never_falls; /* no delta is negative */
    bool all_same;    /* all deltas are the same row */
    unsigned n_steps; /* of the present search */
} Judge;

/* ---- numbers ---- */

static Number read_value(const Judge *judge, const uint8_t *row, uint32_t column)
{
    Number number = { .whole = 0 };
    float f32;
    int32_t i32;

    if (judge->is_number || judge->table->dtype == RUBATO_F64 ||
        judge->table->dtype == RUBATO_I64) {
        memcpy(&number, row + 8 * (size_t)column, 8);
    } else if (judge->is_real) {
        memcpy(&f32, row + 4 * (size_t)column, 4);
        number.real = (double)f32;
    } else {
        memcpy(&i32, row + 4 * (size_t)column, 4);
        number.whole = (uint64_t)(int64_t)i32;
    }
    return number;
}

static Number plus(const Judge *judge, Number a, Number b)
{
    return judge->is_real ? (Number){ .real = a.real + b.real }
                          : (Number){ .whole = a.whole + b.whole };
}

static Number minus(const Judge *judge, Number a, Number b)
{
    return judge->is_real ? (Number){ .real = a.real - b.real }
                          : (Number){ .whole = a.whole - b.whole };
}

/* Whether nothing is left, up to rounding. Integers of 32 bits wrap around. */
static bool is_nothing(const Judge *judge, Number left)
{
    if (judge->is_real)
        return fabs(left.real) <= judge->error;
    return judge->is_number || judge->table->dtype == RUBATO_I64 ? left.whole == 0
                                                                 : (uint32_t)left.whole == 0;
}

static bool is_row_nothing(const Judge *judge, const Number *left)
{
    for (uint32_t i = 0; i < judge->n_columns; i++)
        if (!is_nothing(judge, left[i]))
            return false;
    return true;
}

static double as_real(const Judge *judge, Number number)
{
    return judge->is_real ? number.real : (double)(int64_t)number.whole;
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

/* ---- complaints ---- */

static void complain(const Judge *judge, const char *rule, const HistoryEntry *get,
                     const char *format, ...) G_GNUC_PRINTF(4, 5);
static void complain(const Judge *judge, const char *rule, const HistoryEntry *get,
                     const char *format, ...)
{
    const History *const history = judge->history;
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    history->complain(history->user, rule, judge->table, history_source(history, get->source),
                      get->clock, &judge->key, text);
}

static char *name_add(const Judge *judge, const HistoryEntry *add)
{
    const HistorySource *const source = history_source(judge->history, add->source);

    return source->rank == RECORD_ENGINE
               ? g_strdup_printf("an Add of the engine of node %u", source->node)
               : g_strdup_printf("Add %u of worker %u at clock %u", add->n_adds, source->rank,
                                 add->clock);
}

/* ---- windows ---- */

/* How many of a run's first Adds were made below that clock (or phase). */
static size_t count_below(const Run *run, uint64_t clock)
{
    size_t least = 0, most = run->n;

    while (least < most) {
        const size_t middle = (least + most) / 2;
        if (run->adds[middle].clock < clock)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

static size_t count_numbers_below(const Run *run, uint32_t n_adds)
{
    size_t least = 0, most = run->n;

    while (least < most) {
        const size_t middle = (least + most) / 2;
        if (run->adds[middle].n_adds < n_adds)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

static void set_window_of_task(const Judge *judge, Run *run, const HistoryEntry *get)
{
    const HistoryTable *const table = judge->table;
    const bool is_own = run->adds[0].source == get->source;

    if (table->bound == BOUND_BSP) {
        run->least = run->most = count_below(run, get->clock);
        return;
    }
    run->most = run->n;
    if (is_own) {
        run->least = count_numbers_below(run, get->n_adds);
        if (!(get->flags & RECORD_OF_TICKET))
            run->most = run->least;
    } else if (table->bound == BOUND_ASP) {
        run->least = 0;
    } else {
        run->least =
            get->clock > table->staleness ? count_below(run, get->clock - table->staleness) : 0;
    }
}

/* The Adds of another task, or of an engine, that the Get of a task or of an engine sees. Phases of
 * two nodes that differ by one may be at the same time. */
static void set_window_of_other(const Judge *judge, Run *run, const HistoryEntry *get)
{
    const HistorySource *const reader = history_source(judge->history, get->source);
    const HistoryTask *const its = history_task(judge->history, reader);
    const HistoryTask *const task = history_task(judge->history, run->source);

    run->least = 0;
    run->most = run->n;
    if (task != NULL && its != NULL) {
        if (task->has_ended && task->ended_last < its->begun_first)
            run->least = run->n;
        if (its->has_ended && its->ended_last < task->begun_first)
            run->most = 0;
    } else if (task != NULL) {
        if (task->has_ended && task->ended_last <= get->clock)
            run->least = run->n;
        if (get->clock + 1 < task->begun_first)
            run->most = 0;
    } else if (its != NULL) {
        run->least = count_below(run, its->begun_first);
        run->most = its->has_ended ? count_below(run, its->ended_last + 1) : run->n;
    } else if (reader->node == run->source->node) {
        while (run->least < run->n && run->adds[run->least].row < get->row)
            run->least++;
        run->most = run->least;
    } else {
        run->least = get->clock > 1 ? count_below(run, get->clock - 1) : 0;
        run->most = count_below(run, get->clock + 2);
    }
    if (task != NULL && task->failed) /* how much of its Adds was done is not known */
        run->least = 0;
}

static void set_windows(const Judge *judge, const HistoryEntry *get)
{
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        const HistorySource *const reader = history_source(judge->history, get->source);
        size_t sure = 0;

        if (reader->rank != RECORD_ENGINE && reader->epoch == run->source->epoch)
            set_window_of_task(judge, run, get);
        else
            set_window_of_other(judge, run, get);
        while (sure < run->n && !(run->adds[sure].flags & RECORD_FAILED))
            sure++;
        run->least = MIN(run->least, sure);
        run->most = MAX(run->least, run->most);
    }
}

/* ---- is there a choice that gives this row? ---- */

typedef enum { ANSWER_NO, ANSWER_YES, ANSWER_UNKNOWN } Answer;

static const Number *sum_of(const Judge *judge, const Run *run, size_t n)
{
    return run->sums + n * judge->n_columns;
}

/* What a row has beyond the least that it shows. */
static void find_left(const Judge *judge, const uint8_t *row, Number *left)
{
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        left[c] = minus(judge, read_value(judge, row, c), judge->base[c]);
        for (guint i = 0; i < judge->runs->len; i++) {
            const Run *const run = &g_array_index(judge->runs, Run, i);
            left[c] = minus(judge, left[c], sum_of(judge, run, run->least)[c]);
        }
    }
}

/* All deltas are the same: how many of them are left? */
static Answer count_same(const Judge *judge, const Number *left, size_t most)
{
    const double delta = as_real(judge, read_value(judge, judge->adds[0].row, 0));
    const double n = delta != 0 ? rint(as_real(judge, left[0]) / delta) : 0;

    if (n < 0 || n > (double)most)
        return ANSWER_NO;
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        const Number one = read_value(judge, judge->adds[0].row, c);
        const Number rest = judge->is_real
                                ? (Number){ .real = left[c].real - n * one.real }
                                : (Number){ .whole = left[c].whole - (uint64_t)n * one.whole };
        if (!is_nothing(judge, rest))
            return ANSWER_NO;
    }
    return ANSWER_YES;
}

static Answer search(Judge *judge, guint i, const Number *left)
{
    Number rest[MOST_COLUMNS];
    double room = 0;

    if (is_row_nothing(judge, left))
        return ANSWER_YES;
    for (guint k = i; k < judge->runs->len; k++) {
        const Run *const run = &g_array_index(judge->runs, Run, k);
        room += as_real(judge, sum_of(judge, run, run->most)[0]) -
                as_real(judge, sum_of(judge, run, run->least)[0]);
    }
    if (i == judge->runs->len)
        return ANSWER_NO;
    if (judge->never_falls &&
        (as_real(judge, left[0]) < -judge->error || as_real(judge, left[0]) > room + judge->error))
        return ANSWER_NO;
    const Run *const run = &g_array_index(judge->runs, Run, i);
    for (size_t n = run->least; n <= run->most; n++) {
        if (++judge->n_steps > MOST_STEPS)
            return ANSWER_UNKNOWN;
        for (uint32_t c = 0; c < judge->n_columns; c++)
            rest[c] =
                minus(judge, left[c],
                      minus(judge, sum_of(judge, run, n)[c], sum_of(judge, run, run->least)[c]));
        const Answer answer = search(judge, i + 1, rest);
        if (answer != ANSWER_NO)
            return answer;
        if (judge->never_falls && as_real(judge, rest[0]) < -judge->error)
            return ANSWER_NO;
    }
    return ANSWER_NO;
}

static Answer explain_left(Judge *judge, const Number *left)
{
    size_t most = 0;

    for (guint i = 0; i < judge->runs->len; i++) {
        const Run *const run = &g_array_index(judge->runs, Run, i);
        most += run->most - run->least;
    }
    if (is_row_nothing(judge, left))
        return ANSWER_YES;
    if (most == 0)
        return ANSWER_NO;
    if (judge->all_same)
        return count_same(judge, left, most);
    judge->n_steps = 0;
    return search(judge, 0, left);
}

static Answer explain(Judge *judge, const HistoryEntry *get)
{
    Number left[MOST_COLUMNS];

    find_left(judge, get->row, left);
    return explain_left(judge, left);
}

/* ---- what is wrong with it ---- */

/* Whether the row becomes right when the Get need not see so much of one worker. Says so. */
static bool blame_missing(Judge *judge, const HistoryEntry *get)
{
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        const size_t least = run->least, most = run->most;
        const bool is_own = run->adds[0].source == get->source;

        for (size_t n = least; n-- > 0;) {
            run->least = run->most = n;
            if (explain(judge, get) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &run->adds[n]);
            const HistorySource *const reader = history_source(judge->history, get->source);
            const bool is_over = reader->rank == RECORD_ENGINE;
            if (is_own && judge->table->bound != BOUND_BSP)
                complain(judge, "own", get, "its worker does not see its own %s", add);
            else if (is_over)
                complain(judge, "once", get, "%s is lost", add);
            else if (judge->table->bound == BOUND_BSP)
                complain(judge, "exact", get, "%s is missing, which BSP has it see", add);
            else
                complain(judge, "bound", get, "%s is missing, which staleness %u has it see", add,
                         judge->table->staleness);
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

        for (size_t n = most + 1; n <= run->n; n++) {
            run->least = run->most = n;
            if (explain(judge, get) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &run->adds[n - 1]);
            complain(judge, judge->table->bound == BOUND_BSP ? "exact" : "early", get,
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
    Number left[MOST_COLUMNS], with[MOST_COLUMNS];

    find_left(judge, get->row, left);
    for (size_t i = 0; i < judge->n_adds && i < 10000; i++)
        for (int twice = 1; twice >= 0; twice--) {
            for (uint32_t c = 0; c < judge->n_columns; c++) {
                const Number delta = read_value(judge, judge->adds[i].row, c);
                with[c] = twice ? minus(judge, left[c], delta) : plus(judge, left[c], delta);
            }
            if (explain_left(judge, with) != ANSWER_YES)
                continue;
            g_autofree char *add = name_add(judge, &judge->adds[i]);
            complain(judge, "once", get, twice ? "it shows %s twice" : "%s is lost", add);
            return true;
        }
    return false;
}

static void blame(Judge *judge, const HistoryEntry *get)
{
    Number left[MOST_COLUMNS];

    if (blame_missing(judge, get) || blame_early(judge, get) || blame_one(judge, get))
        return;
    set_windows(judge, get);
    find_left(judge, get->row, left);
    for (uint32_t c = 0; c < judge->n_columns; c++)
        if (!is_nothing(judge, left[c]) || c + 1 == judge->n_columns) {
            const double value = as_real(judge, read_value(judge, get->row, c));
            complain(judge, "invented", get,
                     "it shows %.17g in column %u, and no choice of the Adds that it may see gives "
                     "that: the least of them make %.17g",
                     value, c, value - as_real(judge, left[c]));
            return;
        }
}

/* ---- the key ---- */

static void find_runs(Judge *judge)
{
    Number sum[MOST_COLUMNS];

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
            sum[c] = plus(judge, sum[c], read_value(judge, add->row, c));
        g_array_append_vals(judge->sums, sum, judge->n_columns);
        g_array_index(judge->runs, Run, judge->runs->len - 1).n++;
    }
    const Number *sums = (const Number *)(const void *)judge->sums->data;
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        run->sums = sums;
        sums += (run->n + 1) * judge->n_columns;
    }
}

/* What can be said of all deltas, and how far sums of them may be off. */
static void look_at_deltas(Judge *judge)
{
    const size_t row_bytes =
        judge->is_number ? 8 : rubato_dtype_size(judge->table->dtype) * judge->table->width;
    const double unit = judge->is_number || judge->table->dtype == RUBATO_F64 ? 0x1p-53 : 0x1p-24;
    double size = 0;
    bool whole = !judge->is_number || !judge->is_real;

    judge->never_falls = judge->all_same = true;
    for (size_t i = 0; i < judge->n_adds; i++) {
        double most = 0;
        for (uint32_t c = 0; c < judge->n_columns; c++) {
            const double value = as_real(judge, read_value(judge, judge->adds[i].row, c));
            judge->never_falls &= value >= 0;
            whole &= value == rint(value);
            const double size_of_value = fabs(value);
            most = MAX(most, size_of_value);
        }
        size += most;
        judge->all_same &= memcmp(judge->adds[i].row, judge->adds[0].row, row_bytes) == 0;
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
        set_windows(judge, &judge->gets[i]);
        if (sees_all(judge)) {
            find_left(judge, judge->gets[i].row, judge->base);
            return true;
        }
    }
    return false;
}

static bool is_same_row(const Judge *judge, const HistoryEntry *a, const HistoryEntry *b)
{
    const size_t bytes =
        judge->is_number ? 8 : rubato_dtype_size(judge->table->dtype) * judge->table->width;

    return memcmp(a->row, b->row, bytes) == 0;
}

/* ---- BSP ---- */

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
    return a->row < b->row ? -1 : a->row > b->row;
}

/* All workers that read a key at the same clock see the same bits, whatever the update rule. */
static void judge_same(Judge *judge)
{
    g_autofree HistoryEntry *gets = g_memdup2(judge->gets, judge->n_gets * sizeof *gets);

    g_qsort_with_data(gets, (int)judge->n_gets, sizeof *gets, compare_by_clock, judge);
    for (size_t i = 1; i < judge->n_gets; i++) {
        const HistorySource *const a = history_source(judge->history, gets[i - 1].source);
        const HistorySource *const b = history_source(judge->history, gets[i].source);
        if (a->rank != RECORD_ENGINE && a->epoch == b->epoch &&
            gets[i - 1].clock == gets[i].clock && !is_same_row(judge, &gets[i - 1], &gets[i]))
            complain(judge, "same", &gets[i],
                     "it shows other bits than a Get of worker %u at the same clock", a->rank);
    }
}

/* Adds floats in the order of BSP, each with its rounding, and compares bits. Only where nothing is
 * added between tasks. */
static void judge_bits(Judge *judge)
{
    const bool is_f32 = judge->table->dtype == RUBATO_F32;
    const uint32_t n = judge->n_columns;
    double row[MOST_COLUMNS];
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
        bool same = true;

        if (reader->rank == RECORD_ENGINE)
            continue;
        while (at < judge->n_adds) {
            const HistorySource *const adder = history_source(judge->history, adds[at].source);
            if (adder->epoch > reader->epoch ||
                (adder->epoch == reader->epoch && adds[at].clock >= gets[i].clock))
                break;
            for (uint32_t c = 0; c < n; c++) {
                row[c] += read_value(judge, adds[at].row, c).real;
                if (is_f32)
                    row[c] = (double)(float)row[c];
            }
            at++;
        }
        for (uint32_t c = 0; c < n && same; c++) {
            const double seen = read_value(judge, gets[i].row, c).real;
            same = seen == row[c] || (isnan(seen) && isnan(row[c]));
        }
        if (!same)
            complain(judge, "exact", &gets[i],
                     "it differs by its last bits from the Adds of all clocks before, in the order "
                     "of clocks and workers");
    }
}

/* ---- all of it ---- */

/* No worker sees less of a row that only grows than it saw before. */
static void judge_going_back(Judge *judge, const HistoryEntry *get)
{
    if (get == judge->gets || get[-1].source != get->source || !judge->never_falls ||
        (get->flags | get[-1].flags) & RECORD_OF_TICKET)
        return;
    const double before = as_real(judge, read_value(judge, get[-1].row, 0));
    const double now = as_real(judge, read_value(judge, get->row, 0));
    if (now < before - judge->error)
        complain(judge, "back", get, "it shows %.17g, and its worker has seen %.17g before", now,
                 before);
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
    for (size_t i = 0; i < judge->n_gets; i++) {
        const HistoryEntry *const get = &judge->gets[i];

        judge->counts->n_rows++;
        set_windows(judge, get);
        const Answer answer = explain(judge, get);
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
