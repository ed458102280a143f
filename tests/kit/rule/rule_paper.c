/* Rows as a formula has them.
 *
 * Thread: that of the test case. */
#include "tests/kit/rule/rule_paper.h"

#include <math.h>
#include <string.h>

#include "tests/kit/values.h"

typedef struct {
    double *values, *state;
    bool is_spoiled; /* it has taken what is no number */
} Row;

struct Paper {
    const RubatoTestFormula *formula;
    RubatoRule rule;
    RubatoDtype dtype;
    uint32_t width;
    double init_value;
    size_t n_state;
    size_t n;
    Row rows[];
};

Paper *paper_new(const RubatoTestFormula *formula, const RubatoRule *rule,
                 const RubatoUpdate *update, size_t n, double init_value)
{
    Paper *paper = g_malloc0(sizeof *paper + n * sizeof *paper->rows);

    paper->formula = formula;
    paper->rule = *rule;
    paper->dtype = update->dtype;
    paper->width = update->width;
    paper->init_value = init_value;
    paper->n_state = (size_t)formula->state_per_value * update->width + formula->state_per_row;
    paper->n = n;
    for (size_t i = 0; i < n; i++) {
        paper->rows[i].values = g_new(double, paper->width);
        paper->rows[i].state = g_new(double, paper->n_state + 1);
        paper_set(paper, i, NULL);
    }
    return paper;
}

void paper_free(Paper *paper)
{
    for (size_t i = 0; paper != NULL && i < paper->n; i++) {
        g_free(paper->rows[i].values);
        g_free(paper->rows[i].state);
    }
    g_free(paper);
}

void paper_set(Paper *paper, size_t i, const void *values)
{
    Row *row = &paper->rows[i];

    for (uint32_t c = 0; c < paper->width; c++)
        row->values[c] = values == NULL ? paper->init_value : value_number(paper->dtype, values, c);
    memset(row->state, 0, paper->n_state * sizeof *row->state);
    if (paper->formula->begin != NULL)
        paper->formula->begin(&paper->rule, paper->width, row->values, row->state);
    row->is_spoiled = false;
}

/* What is left of a gradient after clipping and decay. */
static void prepare(const RubatoRule *rule, const double *values, uint32_t width, double *g)
{
    double norm = 0;

    for (uint32_t i = 0; i < width && rule->clip_value > 0; i++)
        g[i] = fmax(-rule->clip_value, fmin(rule->clip_value, g[i]));
    for (uint32_t i = 0; i < width; i++)
        norm += g[i] * g[i];
    norm = sqrt(norm);
    for (uint32_t i = 0; i < width && rule->clip_norm > 0 && norm > rule->clip_norm; i++)
        g[i] *= rule->clip_norm / norm;
    for (uint32_t i = 0; i < width; i++)
        g[i] += rule->weight_decay * values[i];
}

void paper_step(Paper *paper, size_t i, const void *deltas)
{
    Row *row = &paper->rows[i];
    double g[RULE_MAX_WIDTH];

    for (uint32_t c = 0; c < paper->width; c++) {
        g[c] = value_number(paper->dtype, deltas, c);
        row->is_spoiled |= !isfinite(g[c]);
    }
    prepare(&paper->rule, row->values, paper->width, g);
    paper->formula->step(&paper->rule, paper->width, row->values, row->state, g);
}

size_t paper_compare(const Paper *paper, const void *values, size_t n, double *expected)
{
    const double bound = paper->dtype == RUBATO_F32 ? 3e-5 : 1e-11;

    for (size_t i = 0; i < n; i++) {
        const Row *row = &paper->rows[i / paper->width];
        const double value = row->values[i % paper->width];
        const double most = bound * fmax(fabs(value), 0.1);

        if (row->is_spoiled || fabs(value_number(paper->dtype, values, i) - value) <= most)
            continue;
        *expected = value;
        return i;
    }
    return n;
}
