/* Rows as a formula has them, in double precision.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_RULE_RULE_PAPER_H
#define TESTS_KIT_RULE_RULE_PAPER_H

#include "tests/kit/rule/rule_world.h"

typedef struct Paper Paper;

/* n rows of the dtype with this initial value. (transfer full) */
Paper *paper_new(const RubatoTestFormula *formula, const RubatoRule *rule,
                 const RubatoUpdate *update, size_t n, double init_value);
void paper_free(Paper *paper);

/* Gives row i values, or its initial ones if they are NULL, and its first state. */
void paper_set(Paper *paper, size_t i, const void *values);

/* Row i takes deltas. */
void paper_step(Paper *paper, size_t i, const void *deltas);

/* The first of n values that is another than the formula says; n: none. *expected becomes what it
 * says. Rows that have taken what is no number are not compared. */
size_t paper_compare(const Paper *paper, const void *values, size_t n, double *expected);

#endif
