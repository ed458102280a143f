/* Every update rule is compared with its formula, computed step by step in double precision from
 * the papers, by the testing kit: over both storages and real types, narrow and wide rows, repeated
 * keys, runs and selections, many rows at once. */
#include <math.h>
#include <rubato/testing.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/runner.h"

/* ---- the formulas ---- */

/* What most of them keep: for each value the first moment (velocity, z) and the second one (sums or
 * means of squares, n); for the row the second moment, and how many steps it has had. */
typedef struct {
    double *first, *second;
    double *of_row, *t;
} Moments;

static Moments moments_in(double *state, uint32_t width)
{
    return (Moments){ state, state + width, state + 2 * (size_t)width,
                      state + 2 * (size_t)width + 1 };
}

static double squared(double x)
{
    return x * x;
}

static double mean_of_squares(const double *g, uint32_t width)
{
    double sum = 0;

    for (uint32_t i = 0; i < width; i++)
        sum += squared(g[i]);
    return sum / width;
}

static void sgd(const RubatoRule *r, uint32_t width, double *w, double *state, const double *g)
{
    (void)state;
    for (uint32_t i = 0; i < width; i++)
        w[i] -= r->learning_rate * g[i];
}

static void momentum(const RubatoRule *r, uint32_t width, double *w, double *velocity,
                     const double *g)
{
    for (uint32_t i = 0; i < width; i++) {
        velocity[i] = r->momentum * velocity[i] + g[i];
        w[i] -= r->learning_rate * velocity[i];
    }
}

/* Sutskever et al., eq. 3 and 4, at the point that looks ahead: with v = -rate × velocity and a
 * gradient taken there, the point itself moves by momentum × v - rate × gradient. */
static void nesterov(const RubatoRule *r, uint32_t width, double *w, double *velocity,
                     const double *g)
{
    for (uint32_t i = 0; i < width; i++) {
        const double v = r->momentum * velocity[i] - r->learning_rate * g[i];

        w[i] += r->momentum * v - r->learning_rate * g[i];
        velocity[i] = v;
    }
}

static void adagrad_begin(const RubatoRule *r, uint32_t width, const double *w, double *state)
{
    const Moments m = moments_in(state, width);

    (void)w;
    *m.of_row = r->initial_accumulator;
    for (uint32_t i = 0; i < width; i++)
        m.second[i] = r->initial_accumulator;
}

static void adagrad(const RubatoRule *r, uint32_t width, double *w, double *state, const double *g)
{
    const Moments m = moments_in(state, width);

    *m.of_row += mean_of_squares(g, width);
    for (uint32_t i = 0; i < width; i++) {
        const double sum = r->row_wise ? *m.of_row : (m.second[i] += squared(g[i]));

        w[i] -= r->learning_rate / (sqrt(sum) + r->epsilon) * g[i];
    }
}

static void rmsprop(const RubatoRule *r, uint32_t width, double *w, double *mean, const double *g)
{
    for (uint32_t i = 0; i < width; i++) {
        mean[i] = r->decay * mean[i] + (1 - r->decay) * squared(g[i]);
        w[i] -= r->learning_rate / (sqrt(mean[i]) + r->epsilon) * g[i];
    }
}

/* Algorithm 1, the steps counted and the powers taken. */
static void adam(const RubatoRule *r, uint32_t width, double *w, double *state, const double *g)
{
    const Moments m = moments_in(state, width);

    *m.t += 1;
    *m.of_row = r->beta2 * *m.of_row + (1 - r->beta2) * mean_of_squares(g, width);
    for (uint32_t i = 0; i < width; i++) {
        m.first[i] = r->beta1 * m.first[i] + (1 - r->beta1) * g[i];
        m.second[i] = r->beta2 * m.second[i] + (1 - r->beta2) * squared(g[i]);
        const double v = r->row_wise ? *m.of_row : m.second[i];

        w[i] -= r->learning_rate * m.first[i] / (1 - pow(r->beta1, *m.t)) /
                (sqrt(v / (1 - pow(r->beta2, *m.t))) + r->epsilon);
    }
}

/* Algorithm 1: w follows from z and n when it is needed. */
static double ftrl_weight(const RubatoRule *r, double z, double n)
{
    if (fabs(z) <= r->l1)
        return 0;
    return -1 / ((r->beta + sqrt(n)) / r->learning_rate + r->l2) * (z - (z < 0 ? -1 : 1) * r->l1);
}

/* The z from which the initial weight follows: that of ftrl_weight solved for z. */
static void ftrl_begin(const RubatoRule *r, uint32_t width, const double *w, double *state)
{
    for (uint32_t i = 0; i < width; i++)
        if (w[i] != 0)
            state[i] = -w[i] * (r->beta / r->learning_rate + r->l2) - (w[i] < 0 ? -1 : 1) * r->l1;
}

static void ftrl(const RubatoRule *r, uint32_t width, double *w, double *state, const double *g)
{
    const Moments m = moments_in(state, width);

    for (uint32_t i = 0; i < width; i++) {
        const double n = m.second[i] + squared(g[i]);
        const double sigma = (sqrt(n) - sqrt(m.second[i])) / r->learning_rate;

        m.first[i] += g[i] - sigma * w[i];
        m.second[i] = n;
        w[i] = ftrl_weight(r, m.first[i], m.second[i]);
    }
}

static void moving_average(const RubatoRule *r, uint32_t width, double *w, double *state,
                           const double *x)
{
    (void)state;
    for (uint32_t i = 0; i < width; i++)
        w[i] = w[i] * r->decay + x[i] * (1 - r->decay);
}

#define OF_TWO .state_per_value = 2, .state_per_row = 2

static const struct {
    const char *update;
    RubatoTestFormula formula;
} formulas[] = {
    { "sgd", { .step = sgd } },
    { "momentum", { .state_per_value = 1, .step = momentum } },
    { "nesterov", { .state_per_value = 1, .step = nesterov } },
    { "adagrad", { OF_TWO, .begin = adagrad_begin, .step = adagrad } },
    { "rmsprop", { .state_per_value = 1, .step = rmsprop } },
    { "adam", { OF_TWO, .step = adam } },
    { "ftrl", { OF_TWO, .begin = ftrl_begin, .step = ftrl } },
    { "moving_average", { .step = moving_average } },
};

/* ---- the cases ---- */

typedef struct {
    const char *update;
    RubatoRule given;    /* as a spec says it */
    RubatoRule expected; /* what that means; all zero: the same */
    double init;         /* of every value */
} Case;

static const Case cases[] = {
    { .update = "sgd", .expected = { .learning_rate = 0.01 } },
    { .update = "sgd", .given = { .learning_rate = 0.3, .weight_decay = 0.1 } },
    { .update = "sgd", .given = { .learning_rate = 1, .clip_value = 0.4, .clip_norm = 0.7 } },
    { .update = "sgd",
      .given = { .learning_rate = RUBATO_ZERO },
      .expected = { .learning_rate = 0 },
      .init = 3 },
    { .update = "momentum", .expected = { .learning_rate = 0.01, .momentum = 0.9 } },
    { .update = "momentum",
      .given = { .learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.01, .clip_norm = 1 },
      .init = 1 },
    { .update = "nesterov", .expected = { .learning_rate = 0.01, .momentum = 0.9 } },
    { .update = "nesterov",
      .given = { .learning_rate = 0.2, .momentum = 0.7, .clip_value = 0.5 },
      .init = -1 },
    { .update = "adagrad", .expected = { .learning_rate = 0.01, .epsilon = 1e-8 } },
    { .update = "adagrad",
      .given = { .learning_rate = 0.5,
                 .epsilon = 1e-3,
                 .initial_accumulator = 0.1,
                 .weight_decay = 0.05 } },
    { .update = "adagrad",
      .given = { .learning_rate = 0.5,
                 .epsilon = 1e-6,
                 .initial_accumulator = 0.25,
                 .row_wise = true },
      .init = 0.5 },
    { .update = "rmsprop", .expected = { .learning_rate = 0.01, .decay = 0.9, .epsilon = 1e-8 } },
    { .update = "rmsprop",
      .given = { .learning_rate = 0.05, .decay = 0.5, .epsilon = 1e-2, .clip_norm = 0.5 } },
    { .update = "adam",
      .expected = { .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 } },
    { .update = "adam",
      .given = { .learning_rate = 0.1,
                 .beta1 = RUBATO_ZERO,
                 .beta2 = 0.8,
                 .epsilon = 1e-3,
                 .weight_decay = 0.1 },
      .init = 2 },
    { .update = "adam",
      .given = { .learning_rate = 0.1,
                 .beta1 = 0.6,
                 .beta2 = 0.9,
                 .epsilon = 1e-6,
                 .clip_value = 0.3,
                 .row_wise = true } },
    { .update = "ftrl", .expected = { .learning_rate = 0.1, .beta = 1 } },
    { .update = "ftrl", .given = { .learning_rate = 0.5, .beta = 0.2, .l1 = 0.8, .l2 = 1.5 } },
    { .update = "ftrl",
      .given = { .learning_rate = 0.5,
                 .beta = 2,
                 .l1 = 0.1,
                 .l2 = 0.5,
                 .weight_decay = 0.1,
                 .clip_norm = 2 },
      .init = 0.75 },
    { .update = "moving_average", .expected = { .decay = 0.99 } },
    { .update = "moving_average", .given = { .decay = 0.5 }, .init = 8 },
};

static const RubatoTestFormula *formula_of(const char *update)
{
    for (size_t i = 0; i < G_N_ELEMENTS(formulas); i++)
        if (strcmp(formulas[i].update, update) == 0)
            return &formulas[i].formula;
    ck_abort_msg("there is no formula of %s", update);
}

START_TEST(rules_do_what_their_papers_say)
{
    static const RubatoRule none;
    const Case *what = &cases[_i];
    const bool is_as_given = memcmp(&what->expected, &none, sizeof none) == 0;

    rubato_test_update_rule(&(RubatoUpdateRuleTest){
        .spec = { .update = what->update, .rule = what->given, .init_value = what->init },
        .formula = formula_of(what->update),
        .means = is_as_given ? &what->given : &what->expected,
        .n_seeds = is_slow() ? 8 : 200 });
}
END_TEST

/* Any of its hyper-parameters, and other ones on the way. */
START_TEST(rules_keep_what_every_rule_has_to)
{
    rubato_test_update_rule(&(RubatoUpdateRuleTest){ .spec = { .update = formulas[_i].update },
                                                     .n_seeds = is_slow() ? 20 : 400 });
}
END_TEST

/* ---- one step by hand, so that formulas and program cannot be wrong together ---- */

static const struct {
    const char *update;
    RubatoRule rule;
    double after[2]; /* a row of 1, after gradients of 2 and then of -1 */
} by_hand[] = {
    { "sgd", { .learning_rate = 0.5 }, { 0, 0.5 } },
    { "momentum", { .learning_rate = 0.5, .momentum = 0.5 }, { 0, 0 } },
    { "nesterov", { .learning_rate = 0.5, .momentum = 0.5 }, { -0.5, 0 } },
    { "adagrad", { .learning_rate = 0.5, .epsilon = 1e-30 }, { 0.5, 0.723606797749979 } },
    { "rmsprop", { .learning_rate = 0.5, .decay = 0.75, .epsilon = 1e-30 }, { 0, 0.5 } },
    { "adam",
      { .learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-30 },
      { 0.5, 0.5 } },
    { "ftrl",
      { .learning_rate = 0.5, .beta = 1, .l1 = 0.5, .l2 = 1 },
      { 0.7142857142857143, 0.8481162556493124 } },
    { "moving_average", { .decay = 0.75 }, { 1.25, 0.6875 } },
};

START_TEST(two_steps_come_out_as_by_hand)
{
    const RubatoTableSpec spec = { .name = "t",
                                   .dtype = RUBATO_F64,
                                   .n_keys = 1,
                                   .update = by_hand[_i].update,
                                   .rule = by_hand[_i].rule,
                                   .init_value = 1 };
    const RubatoKeys key = { .n = 1 };
    const double gradients[] = { 2, -1 };
    RubatoShard *shard;

    ck_assert(spec_check(&spec, NULL));
    shard = shard_new(&spec, 0, 1, NULL);
    for (int i = 0; i < 2; i++) {
        double value;

        shard_add(shard, &key, &gradients[i]);
        shard_get(shard, &key, &value);
        ck_assert_double_eq_tol(value, by_hand[_i].after[i], 1e-12);
    }
    shard_free(shard);
}
END_TEST

static Suite *update_rules_suite(void)
{
    Suite *suite = suite_create("update rules");
    TCase *tcase = tcase_create("rules");

    tcase_add_loop_test(tcase, rules_do_what_their_papers_say, 0, (int)G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, rules_keep_what_every_rule_has_to, 0, (int)G_N_ELEMENTS(formulas));
    tcase_add_loop_test(tcase, two_steps_come_out_as_by_hand, 0, (int)G_N_ELEMENTS(by_hand));
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(update_rules_suite());
}
