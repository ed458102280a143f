/* Whether some choice of Adds within the windows gives a row.
 *
 * Threads: one. */
#include "apps/rubato/history/history_judge.h"

enum { MOST_STEPS = 5000 };

static const Number *sum_of(const Judge *judge, const Run *run, size_t n)
{
    return run->sums + n * judge->n_columns;
}

void judge_find_left(const Judge *judge, const uint8_t *row, Number *left)
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
    const double delta = as_real(judge, read_delta(judge, &judge->adds[0], 0));
    const double n = delta != 0 ? rint(as_real(judge, left[0]) / delta) : 0;

    if (n < 0 || n > (double)most)
        return ANSWER_NO;
    for (uint32_t c = 0; c < judge->n_columns; c++) {
        const Number one = read_delta(judge, &judge->adds[0], c);
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
    Number rest[JUDGE_MOST_COLUMNS];
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

Answer judge_explain_left(Judge *judge, const Number *left)
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

Answer judge_explain(Judge *judge, const HistoryEntry *get)
{
    Number left[JUDGE_MOST_COLUMNS];

    judge_find_left(judge, get->row, left);
    return judge_explain_left(judge, left);
}
