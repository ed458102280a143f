/* What the rules have in common: the judge, numbers, windows. For history_*.c of this folder.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_JUDGE_H
#define APPS_RUBATO_HISTORY_JUDGE_H

#include <math.h>
#include <string.h>

#include "apps/rubato/history/history_rules.h"

enum { JUDGE_MOST_COLUMNS = 16 };

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
    size_t n_sure;      /* those before the first that failed */
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
    Number base[JUDGE_MOST_COLUMNS];
    double error;     /* by which sums may be wrong */
    bool never_falls; /* no delta is negative */
    bool all_same;    /* all deltas are the same row */
    unsigned n_steps; /* of the present search */

    uint64_t n_blamed; /* rows, of all keys */
} Judge;

/* Tells what is wrong with a Get. */
void judge_complain(const Judge *judge, const char *rule, const HistoryEntry *get,
                    const char *format, ...) G_GNUC_PRINTF(4, 5);

/* ---- windows: history_windows.c ---- */

/* Sets `least` and `most` of each run: what this Get may see. */
void judge_set_windows(const Judge *judge, const HistoryEntry *get);

/* ---- is there a choice within the windows that gives a row? history_explain.c ---- */

typedef enum { ANSWER_NO, ANSWER_YES, ANSWER_UNKNOWN } Answer;

/* What a row has beyond the least that it shows. */
void judge_find_left(const Judge *judge, const uint8_t *row, Number *left);

/* Whether Adds between the least and the most of the runs give what is left, or the Get's row. */
Answer judge_explain_left(Judge *judge, const Number *left);
Answer judge_explain(Judge *judge, const HistoryEntry *get);

/* ---- BSP: history_bsp.c ---- */

/* All workers that read a key at the same clock see the same bits, whatever the update rule. */
void judge_same(Judge *judge);

/* Adds floats in the order of BSP, each with its rounding, and compares bits. Only where nothing is
 * added between tasks. */
void judge_bits(Judge *judge);

/* ---- rows and numbers ---- */

static inline size_t row_bytes(const Judge *judge)
{
    return judge->is_number ? 8 : rubato_dtype_size(judge->table->dtype) * judge->table->width;
}

static inline Number read_value(const Judge *judge, const uint8_t *row, uint32_t column)
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

static inline Number minus(const Judge *judge, Number a, Number b)
{
    return judge->is_real ? (Number){ .real = a.real - b.real }
                          : (Number){ .whole = a.whole - b.whole };
}

/* The row after a call that changed it. */
static inline const uint8_t *row_after(const Judge *judge, const HistoryEntry *call)
{
    return call->row + row_bytes(judge);
}

/* What an Add, or a call, adds to a row. */
static inline Number read_delta(const Judge *judge, const HistoryEntry *add, uint32_t column)
{
    const Number value = read_value(judge, add->row, column);

    return add->flags & ENTRY_CALL
               ? minus(judge, read_value(judge, row_after(judge, add), column), value)
               : value;
}

static inline Number plus(const Judge *judge, Number a, Number b)
{
    return judge->is_real ? (Number){ .real = a.real + b.real }
                          : (Number){ .whole = a.whole + b.whole };
}

/* Whether nothing is left, up to rounding. Integers of 32 bits wrap around. */
static inline bool is_nothing(const Judge *judge, Number left)
{
    if (judge->is_real)
        return fabs(left.real) <= judge->error;
    return judge->is_number || judge->table->dtype == RUBATO_I64 ? left.whole == 0
                                                                 : (uint32_t)left.whole == 0;
}

static inline bool is_row_nothing(const Judge *judge, const Number *left)
{
    for (uint32_t i = 0; i < judge->n_columns; i++)
        if (!is_nothing(judge, left[i]))
            return false;
    return true;
}

static inline double as_real(const Judge *judge, Number number)
{
    return judge->is_real ? number.real : (double)(int64_t)number.whole;
}

#endif
