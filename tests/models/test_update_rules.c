/* Every update rule is compared with its formula, computed step by step in double precision from
 * the papers: over both storages and real types, narrow and wide rows, repeated keys, runs and
 * selections. */
#include <math.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard.h"
#include "models/spec.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 9, N_STEPS = 24, MAX_WIDTH = 37, MAX_ROWS = 8 };

#define FIRST_KEY 50

static const char *const storages[] = { "dense", "hash" };
static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64 };
static const uint32_t widths[] = { 1, 2, 7, 32, MAX_WIDTH };

/* ---- the formulas ---- */

/* A row as the papers have it. */
typedef struct {
    double w[MAX_WIDTH];
    double first[MAX_WIDTH];  /* velocity, first moment, z */
    double second[MAX_WIDTH]; /* sums or means of squares, n */
    double of_row;            /* the same for the row */
    unsigned t;
} Paper;

static double squared(double x)
{
    return x * x;
}

/* What is left of a gradient after clipping and decay. */
static void prepare(const RubatoRule *r, const Paper *row, uint32_t width, double *g)
{
    double norm = 0;

    for (uint32_t i = 0; i < width && r->clip_value > 0; i++)
        g[i] = fmax(-r->clip_value, fmin(r->clip_value, g[i]));
    for (uint32_t i = 0; i < width; i++)
        norm += squared(g[i]);
    norm = sqrt(norm);
    for (uint32_t i = 0; i < width && r->clip_norm > 0 && norm > r->clip_norm; i++)
        g[i] *= r->clip_norm / norm;
    for (uint32_t i = 0; i < width; i++)
        g[i] += r->weight_decay * row->w[i];
}

static double mean_of_squares(const double *g, uint32_t width)
{
    double sum = 0;

    for (uint32_t i = 0; i < width; i++)
        sum += squared(g[i]);
    return sum / width;
}

static void sgd(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    row->w[i] -= r->learning_rate * g;
}

static void momentum(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    row->first[i] = r->momentum * row->first[i] + g;
    row->w[i] -= r->learning_rate * row->first[i];
}

/* Sutskever et al., eq. 3 and 4, at the point that looks ahead: with v = -rate × velocity and a
 * gradient taken there, the point itself moves by momentum × v - rate × gradient. */
static void nesterov(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    const double v = r->momentum * row->first[i] - r->learning_rate * g;

    row->w[i] += r->momentum * v - r->learning_rate * g;
    row->first[i] = v;
}

static void adagrad(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    const double sum = r->row_wise ? row->of_row : (row->second[i] += squared(g));

    row->w[i] -= r->learning_rate / (sqrt(sum) + r->epsilon) * g;
}

static void rmsprop(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    row->second[i] = r->decay * row->second[i] + (1 - r->decay) * squared(g);
    row->w[i] -= r->learning_rate / (sqrt(row->second[i]) + r->epsilon) * g;
}

/* Algorithm 1, the steps counted and the powers taken. */
static void adam(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    double m, v;

    row->first[i] = r->beta1 * row->first[i] + (1 - r->beta1) * g;
    if (!r->row_wise)
        row->second[i] = r->beta2 * row->second[i] + (1 - r->beta2) * squared(g);
    m = row->first[i] / (1 - pow(r->beta1, row->t));
    v = (r->row_wise ? row->of_row : row->second[i]) / (1 - pow(r->beta2, row->t));
    row->w[i] -= r->learning_rate * m / (sqrt(v) + r->epsilon);
}

/* Algorithm 1: w follows from z and n when it is needed. */
static double ftrl_weight(const RubatoRule *r, double z, double n)
{
    if (fabs(z) <= r->l1)
        return 0;
    return -1 / ((r->beta + sqrt(n)) / r->learning_rate + r->l2) * (z - (z < 0 ? -1 : 1) * r->l1);
}

static void ftrl(const RubatoRule *r, Paper *row, uint32_t i, double g)
{
    const double sigma =
        (sqrt(row->second[i] + squared(g)) - sqrt(row->second[i])) / r->learning_rate;

    row->first[i] += g - sigma * row->w[i];
    row->second[i] += squared(g);
    row->w[i] = ftrl_weight(r, row->first[i], row->second[i]);
}

static void moving_average(const RubatoRule *r, Paper *row, uint32_t i, double x)
{
    row->w[i] = row->w[i] * r->decay + x * (1 - r->decay);
}

/* ---- the cases ---- */

typedef struct {
    const char *update;
    void (*step)(const RubatoRule *rule, Paper *row, uint32_t i, double g);
    RubatoRule given;    /* as a spec says it */
    RubatoRule expected; /* what that means; all zero: the same */
    double init;         /* of every value */
} Case;

static const Case cases[] = {
    { .update = "sgd", .step = sgd, .expected = { .learning_rate = 0.01 } },
    { .update = "sgd", .step = sgd, .given = { .learning_rate = 0.3, .weight_decay = 0.1 } },
    { .update = "sgd",
      .step = sgd,
      .given = { .learning_rate = 1, .clip_value = 0.4, .clip_norm = 0.7 } },
    { .update = "sgd",
      .step = sgd,
      .given = { .learning_rate = RUBATO_ZERO },
      .expected = { .learning_rate = 0 },
      .init = 3 },
    { .update = "momentum",
      .step = momentum,
      .expected = { .learning_rate = 0.01, .momentum = 0.9 } },
    { .update = "momentum",
      .step = momentum,
      .given = { .learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.01, .clip_norm = 1 },
      .init = 1 },
    { .update = "nesterov",
      .step = nesterov,
      .expected = { .learning_rate = 0.01, .momentum = 0.9 } },
    { .update = "nesterov",
      .step = nesterov,
      .given = { .learning_rate = 0.2, .momentum = 0.7, .clip_value = 0.5 },
      .init = -1 },
    { .update = "adagrad",
      .step = adagrad,
      .expected = { .learning_rate = 0.01, .epsilon = 1e-8 } },
    { .update = "adagrad",
      .step = adagrad,
      .given = { .learning_rate = 0.5,
                 .epsilon = 1e-3,
                 .initial_accumulator = 0.1,
                 .weight_decay = 0.05 } },
    { .update = "adagrad",
      .step = adagrad,
      .given = { .learning_rate = 0.5,
                 .epsilon = 1e-6,
                 .initial_accumulator = 0.25,
                 .row_wise = true },
      .init = 0.5 },
    { .update = "rmsprop",
      .step = rmsprop,
      .expected = { .learning_rate = 0.01, .decay = 0.9, .epsilon = 1e-8 } },
    { .update = "rmsprop",
      .step = rmsprop,
      .given = { .learning_rate = 0.05, .decay = 0.5, .epsilon = 1e-2, .clip_norm = 0.5 } },
    { .update = "adam",
      .step = adam,
      .expected = { .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 } },
    { .update = "adam",
      .step = adam,
      .given = { .learning_rate = 0.1,
                 .beta1 = RUBATO_ZERO,
                 .beta2 = 0.8,
                 .epsilon = 1e-3,
                 .weight_decay = 0.1 },
      .init = 2 },
    { .update = "adam",
      .step = adam,
      .given = { .learning_rate = 0.1,
                 .beta1 = 0.6,
                 .beta2 = 0.9,
                 .epsilon = 1e-6,
                 .clip_value = 0.3,
                 .row_wise = true } },
    { .update = "ftrl", .step = ftrl, .expected = { .learning_rate = 0.1, .beta = 1 } },
    { .update = "ftrl",
      .step = ftrl,
      .given = { .learning_rate = 0.5, .beta = 0.2, .l1 = 0.8, .l2 = 1.5 } },
    { .update = "ftrl",
      .step = ftrl,
      .given = { .learning_rate = 0.5,
                 .beta = 2,
                 .l1 = 0.1,
                 .l2 = 0.5,
                 .weight_decay = 0.1,
                 .clip_norm = 2 },
      .init = 0.75 },
    { .update = "moving_average", .step = moving_average, .expected = { .decay = 0.99 } },
    { .update = "moving_average", .step = moving_average, .given = { .decay = 0.5 }, .init = 8 },
};

static void step_row(const Case *what, const RubatoRule *rule, Paper *row, uint32_t width,
                     const double *gradients)
{
    double g[MAX_WIDTH];

    memcpy(g, gradients, width * sizeof *g);
    prepare(rule, row, width, g);
    row->t++;
    if (what->step == adagrad)
        row->of_row += mean_of_squares(g, width);
    if (what->step == adam)
        row->of_row = rule->beta2 * row->of_row + (1 - rule->beta2) * mean_of_squares(g, width);
    for (uint32_t i = 0; i < width; i++)
        what->step(rule, row, i, g[i]);
}

/* ---- running them ---- */

typedef struct {
    const Case *what;
    RubatoTableSpec spec;
    RubatoRule rule; /* for the formulas */
    RubatoShard *shard;
    Paper rows[N_KEYS];
    uint64_t random;
} Trial;

static void trial_init(Trial *trial, const Case *what, const char *storage, RubatoDtype dtype,
                       uint32_t width)
{
    static const RubatoRule none;
    g_autoptr(GError) error = NULL;

    memset(trial, 0, sizeof *trial);
    trial->what = what;
    trial->random = width + 100 * (uint64_t)dtype;
    trial->rule = memcmp(&what->expected, &none, sizeof none) == 0 ? what->given : what->expected;
    trial->spec = (RubatoTableSpec){ .name = "t",
                                     .dtype = dtype,
                                     .width = width,
                                     .storage = storage,
                                     .first_key = FIRST_KEY,
                                     .n_keys = N_KEYS,
                                     .update = what->update,
                                     .rule = what->given,
                                     .init_value = what->init };
    ck_assert_msg(spec_check(&trial->spec, &error), "%s", error == NULL ? "" : error->message);
    trial->shard = shard_new(&trial->spec, FIRST_KEY, N_KEYS, &error);
    ck_assert_ptr_nonnull(trial->shard);
    for (int k = 0; k < N_KEYS; k++) {
        Paper *row = &trial->rows[k];

        row->of_row = trial->rule.initial_accumulator;
        for (uint32_t i = 0; i < width; i++) {
            row->w[i] = what->init;
            row->second[i] = what->step == adagrad ? trial->rule.initial_accumulator : 0;
            /* the z from which the initial weight follows: that of ftrl_weight solved for z */
            if (what->step == ftrl && what->init != 0)
                row->first[i] =
                    -what->init * (trial->rule.beta / trial->rule.learning_rate + trial->rule.l2) -
                    (what->init < 0 ? -1 : 1) * trial->rule.l1;
        }
    }
}

/* Small numbers that both types hold exactly. */
static double random_gradient(Trial *trial)
{
    return ((double)random_below(&trial->random, 513) - 256) / 256;
}

static void store_real(RubatoDtype dtype, void *values, size_t i, double value)
{
    if (dtype == RUBATO_F32)
        ((float *)values)[i] = (float)value;
    else
        ((double *)values)[i] = value;
}

static double load_real(RubatoDtype dtype, const void *values, size_t i)
{
    return dtype == RUBATO_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

/* One Add, in one of the forms of RubatoKeys. */
static void trial_add(Trial *trial)
{
    const uint32_t width = trial->spec.width, form = random_below(&trial->random, 4);
    const size_t n = 1 + random_below(&trial->random, MAX_ROWS);
    double deltas[MAX_ROWS][MAX_WIDTH];
    _Alignas(8) unsigned char values[MAX_ROWS * MAX_WIDTH * 8];
    RubatoKey keys[MAX_ROWS];
    uint32_t at[MAX_ROWS];
    RubatoKeys request = { .keys = keys, .n = n };

    for (size_t i = 0; i < MAX_ROWS; i++) {
        keys[i] = FIRST_KEY + random_below(&trial->random, N_KEYS);
        at[i] = random_below(&trial->random, MAX_ROWS);
        for (uint32_t c = 0; c < width; c++) {
            deltas[i][c] = random_gradient(trial);
            store_real(trial->spec.dtype, values, i * width + c, deltas[i][c]);
        }
    }
    if (form == 0)
        request.at = at;
    if (form == 1)
        request = (RubatoKeys){ .first = FIRST_KEY + random_below(&trial->random, 2), .n = n };
    for (size_t i = 0; i < n; i++) {
        const size_t row = form == 0 ? at[i] : i;
        const RubatoKey key = form == 1 ? request.first + i : keys[row];

        step_row(trial->what, &trial->rule, &trial->rows[key - FIRST_KEY], width, deltas[row]);
    }
    shard_add(trial->shard, &request, values);
}

static void trial_compare(Trial *trial)
{
    const uint32_t width = trial->spec.width;
    const bool is_single = trial->spec.dtype == RUBATO_F32;
    const RubatoKeys all = { .first = FIRST_KEY, .n = N_KEYS };
    _Alignas(8) unsigned char values[N_KEYS * MAX_WIDTH * 8];

    shard_get(trial->shard, &all, values);
    for (size_t i = 0; i < N_KEYS * width; i++) {
        const double expected = trial->rows[i / width].w[i % width];
        const double found = load_real(trial->spec.dtype, values, i);
        const double most = (is_single ? 3e-5 : 1e-11) * fmax(fabs(expected), 0.1);

        require_msg(fabs(found - expected) <= most,
                    "%s, %s, %s x %u: value %zu is %.17g, expected %.17g", trial->what->update,
                    trial->spec.storage, rubato_dtype_name(trial->spec.dtype), width, i, found,
                    expected);
    }
}

START_TEST(rules_do_what_their_papers_say)
{
    for (size_t s = 0; s < G_N_ELEMENTS(storages); s++)
        for (size_t d = 0; d < G_N_ELEMENTS(dtypes); d++)
            for (size_t w = 0; w < G_N_ELEMENTS(widths); w++) {
                Trial trial;

                trial_init(&trial, &cases[_i], storages[s], dtypes[d], widths[w]);
                trial_compare(&trial);
                for (int step = 0; step < N_STEPS; step++) {
                    trial_add(&trial);
                    trial_compare(&trial);
                }
                shard_free(trial.shard);
            }
}
END_TEST

/* ---- many rows at once ---- */

enum { N_MANY = 700, MANY_WIDTH = 32 };

/* Adds of many rows are handled in pieces if bad deltas are searched or gradients are clipped. The
 * result must not show it. */
START_TEST(many_rows_at_once_are_as_each_alone)
{
    static const RubatoRule rules[] = {
        { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_UNCHECKED },
        { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE },
        { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_UNCHECKED, .clip_value = 2 },
    };
    static const char *const updates[] = { "sgd", "adagrad" };
    float values[N_MANY * MANY_WIDTH], read[N_MANY * MANY_WIDTH], expected[N_MANY * MANY_WIDTH];
    RubatoKey keys[N_MANY];
    uint32_t at[N_MANY];
    const RubatoKeys all = { .n = N_MANY };
    const RubatoKeys forms[] = { all,
                                 { .keys = keys, .n = N_MANY },
                                 { .keys = keys, .at = at, .n = N_MANY } };

    for (uint32_t i = 0; i < N_MANY; i++) {
        keys[i] = N_MANY - 1 - i;
        at[i] = (i + 300) % N_MANY;
        for (uint32_t c = 0; c < MANY_WIDTH; c++)
            values[i * MANY_WIDTH + c] = 1 + (float)(i * MANY_WIDTH + c) / 65536;
    }
    for (size_t rule = 0; rule < G_N_ELEMENTS(rules); rule++)
        for (size_t form = 0; form < G_N_ELEMENTS(forms); form++) {
            const RubatoTableSpec spec = { .name = "t",
                                           .storage = storages[_i % 2],
                                           .n_keys = N_MANY,
                                           .width = MANY_WIDTH,
                                           .update = updates[_i / 2],
                                           .rule = rules[rule] };
            RubatoShard *together = shard_new(&spec, 0, N_MANY, NULL);
            RubatoShard *alone = shard_new(&spec, 0, N_MANY, NULL);

            for (uint32_t i = 0; i < N_MANY; i++)
                shard_add(alone, &(RubatoKeys){ .first = form == 0 ? i : keys[i], .n = 1 },
                          values + i * MANY_WIDTH);
            shard_add(together, &forms[form], values);
            shard_get(alone, &all, expected);
            shard_get(together, &all, read);
            require_msg(memcmp(read, expected, sizeof read) == 0, "rule %zu, form %zu", rule, form);
            shard_free(together);
            shard_free(alone);
        }
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
    tcase_add_loop_test(tcase, many_rows_at_once_are_as_each_alone, 0, 4);
    tcase_add_loop_test(tcase, two_steps_come_out_as_by_hand, 0, (int)G_N_ELEMENTS(by_hand));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(update_rules_suite());
}
