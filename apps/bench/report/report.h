/* What comes out of a run, and whether the goals are met.
 *
 * Threads: main. */
#ifndef RUBATO_APPS_BENCH_REPORT_REPORT_H
#define RUBATO_APPS_BENCH_REPORT_REPORT_H

#include "apps/bench/bench.h"

/* ---- goal.c ---- */

bool bench_lower_is_better(BenchUnit unit);

/* Sets the share of a result, the others being those of the same run. */
void result_set_share(BenchResult *result, const BenchResult *others, size_t n);

/* Whether the case has a goal of which this run can tell whether it is met. */
bool goal_is_judged(const BenchResult *result);
bool goal_is_met(const BenchResult *result);

/* "at least 0.6 of the limit". (transfer full) */
char *goal_text(const BenchCase *what);

/* ---- report*.c ---- */

enum { REPORT_NUMBER_BYTES = 32 };

/* "112 ns", "1.11 M": three figures and a prefix; with the unit, "1.11 M keys/s". */
void report_format(BenchUnit unit, double value, char *text);
void report_format_with_unit(BenchUnit unit, double value, char *text);
const char *report_unit(BenchUnit unit);

void report_header(void);
void report_line(const BenchResult *result);

/* "AMD EPYC, 2 processors, Linux 6.1, gcc 12.2, optimised". (transfer full) */
char *report_machine(void);

/* A table for docs/measured.md. */
void report_markdown(const BenchResult *results, size_t n);

/* One object: machine, build, cases. */
bool report_json(const char *path, const BenchResult *results, size_t n, GError **error);

/* The ratios as bars, drawn by gnuplot. */
bool report_plot(const char *path, const BenchResult *results, size_t n, GError **error);

#endif
