/* The goals of cases, and whether they reach them. */
#include <string.h>

#include "apps/bench/bench.h"
#include "apps/bench/report/report.h"

bool bench_lower_is_better(BenchUnit unit)
{
    return unit == BENCH_UNIT_SECONDS || unit == BENCH_UNIT_BYTES || unit == BENCH_UNIT_MESSAGES;
}

void result_set_share(BenchResult *result, const BenchResult *others, size_t n)
{
    for (size_t i = 0; i < n && result->what->beside != NULL; i++)
        if (strcmp(others[i].what->name, result->what->beside) == 0) {
            result->share.own = result->own.median / others[i].own.median;
            result->share.limit = result->limit.median / others[i].limit.median;
        }
}

bool goal_is_judged(const BenchResult *result)
{
    const BenchGoal *goal = &result->what->goal;

    return goal->ratio > 0 || goal->median > 0 || goal->worst > 0 || goal->p99 > 0 ||
           (goal->share > 0 && result->share.own > 0);
}

/* Whether a figure is as good as a goal, if there is one. */
static bool reaches(double figure, double goal, bool lower_is_better)
{
    return goal <= 0 || (lower_is_better ? figure <= goal : figure >= goal);
}

bool goal_is_met(const BenchResult *result)
{
    const BenchGoal *goal = &result->what->goal;
    const bool lower = bench_lower_is_better(result->what->unit);

    return reaches(result->ratio, goal->ratio, lower) &&
           reaches(result->own.median, goal->median, lower) &&
           reaches(result->own.max, goal->worst, true) &&
           reaches(result->own.p99, goal->p99 * result->own.median, true) &&
           (result->share.own <= 0 ||
            reaches(result->share.own, MIN(goal->share, result->share.limit), false));
}

char *goal_text(const BenchCase *what)
{
    const BenchGoal *goal = &what->goal;
    const bool lower = bench_lower_is_better(what->unit);
    const char *bound = lower ? "at most" : "at least";
    g_autoptr(GString) text = g_string_new(NULL);
    char number[REPORT_NUMBER_BYTES];

    if (goal->ratio > 0 && lower)
        g_string_append_printf(text, ", at most %g times the limit", goal->ratio);
    if (goal->ratio > 0 && !lower)
        g_string_append_printf(text, ", at least %g of the limit", goal->ratio);
    if (goal->median > 0) {
        report_format_with_unit(what->unit, goal->median, number);
        g_string_append_printf(text, ", %s %s", bound, number);
    }
    if (goal->worst > 0) {
        report_format_with_unit(what->unit, goal->worst, number);
        g_string_append_printf(text, ", never over %s", number);
    }
    if (goal->p99 > 0)
        g_string_append_printf(text, ", p99 at most %g medians", goal->p99);
    if (goal->share > 0)
        g_string_append_printf(text, ", at least %g of %s, or as much as the limit", goal->share,
                               what->beside);
    return g_strdup(text->len > 0 ? text->str + 2 : "");
}
