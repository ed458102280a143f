/* What happens to deltas between a request and the loops of the rule.
 *
 * There are three steps: a search for bad deltas, clipping and decay, and leaving out refused rows.
 * If the table needs none of them (is_plain), the rule gets the deltas as they came. Otherwise they
 * are handled in pieces that stay in the nearest cache between the search and the rule. Clipping
 * and decay go row by row, because decay needs the values that the row before may have changed.
 *
 * Thread: the shard's present owner. */
#include "models/update/updater.h"

#include <float.h>
#include <rubato/vector_clones.h>
#include <string.h>

#include "models/spec.h"
#include "models/update/rule.h"
#include "models/update/update.h"
#include <rubato/update_loops.h>

#define BLOCK RUBATO_STORAGE_BLOCK
#define PIECE_BYTES ((size_t)16 << 10) /* of deltas, between search and rule */

/* Works out what follows from the hyper-parameters. */
static void look_at_rule(Updater *updater)
{
    const RubatoRule *rule = &updater->update.rule;
    const bool is_single = updater->update.dtype == RUBATO_F32;

    updater->prepares = rule->clip_value != 0 || rule->clip_norm != 0 || rule->weight_decay != 0;
    updater->largest = is_single ? (double)FLT_MAX : DBL_MAX;
    if (rule->max_gradient != 0)
        updater->largest = is_single ? (double)(float)rule->max_gradient : rule->max_gradient;
    updater->is_plain =
        !updater->prepares && rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED;
}

bool updater_init(Updater *updater, const RubatoTableSpec *spec)
{
    const size_t size = rubato_dtype_size(spec->dtype);
    RubatoUpdate *update = &updater->update;

    *updater = (Updater){ .ops = update_find(spec_update_name(spec)) };
    *update = (RubatoUpdate){ .dtype = spec->dtype,
                              .width = spec_width(spec),
                              .rule = rule_resolve(spec) };
    if (updater->ops->state_width != NULL)
        update->state_width = updater->ops->state_width(update);
    updater->value_bytes = update->width * size;
    updater->state_bytes = update->state_width * size;
    updater->row_bytes = updater->value_bytes + updater->state_bytes;
    if (updater->ops->traits.takes_gradients)
        updater->gradients = g_try_malloc(updater->value_bytes);
    look_at_rule(updater);
    return updater->gradients != NULL || !updater->ops->traits.takes_gradients;
}

void updater_clear(Updater *updater)
{
    bad_gradients_clear(&updater->bad);
    g_clear_pointer(&updater->gradients, g_free);
}

void updater_tune(Updater *updater, RubatoHyper hyper, double value)
{
    rule_set(&updater->update.rule, hyper, value);
    look_at_rule(updater);
}

/* ---- clipping and decay ---- */

/* Clipping a gradient that is no number leaves it so. */
#define DEFINE_PREPARE(suffix, type)                                                        \
    RUBATO_VECTOR_CLONES static void prepare_##suffix(                                      \
        const RubatoUpdate *update, const type *restrict values, const type *restrict from, \
        type *restrict to)                                                                  \
    {                                                                                       \
        const RubatoRule *rule = &update->rule;                                             \
        const size_t width = update->width;                                                 \
        const type most = (type)rule->clip_value, decay = (type)rule->weight_decay;         \
                                                                                            \
        if (most > 0)                                                                       \
            for (size_t i = 0; i < width; i++) {                                            \
                const type above = from[i] > most ? most : from[i];                         \
                                                                                            \
                to[i] = above < -most ? -most : above;                                      \
            }                                                                               \
        else                                                                                \
            memcpy(to, from, width * sizeof(type));                                         \
        if (rule->clip_norm > 0) {                                                          \
            const double norm = sqrt(rubato_wide_sum_of_squares_##suffix(to, width));       \
                                                                                            \
            if (norm > rule->clip_norm)                                                     \
                for (size_t i = 0; i < width; i++)                                          \
                    to[i] *= (type)(rule->clip_norm / norm);                                \
        }                                                                                   \
        if (decay > 0)                                                                      \
            for (size_t i = 0; i < width; i++)                                              \
                to[i] += decay * values[i];                                                 \
    }

DEFINE_PREPARE(f32, float)
DEFINE_PREPARE(f64, double)

/* Applies rows of deltas, good or not. */
static void apply(Updater *updater, void *const *rows, const void *deltas, const uint32_t *at,
                  size_t n)
{
    const RubatoUpdate *update = &updater->update;
    const unsigned char *bytes = deltas;

    if (!updater->prepares) {
        updater->ops->apply_rows(update, rows, deltas, at, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const void *delta = bytes + (at == NULL ? i : at[i]) * updater->value_bytes;

        if (update->dtype == RUBATO_F32)
            prepare_f32(update, rows[i], delta, updater->gradients);
        else
            prepare_f64(update, rows[i], delta, updater->gradients);
        updater->ops->apply_rows(update, &rows[i], updater->gradients, NULL, 1);
    }
}

/* ---- bad ones ---- */

bool updater_accepts(Updater *updater, uint32_t worker, const void *deltas)
{
    const RubatoUpdate *update = &updater->update;
    const bool refuses = update->rule.on_bad_gradient == RUBATO_ON_BAD_GRADIENT_REFUSE;

    if (update->rule.on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED ||
        deltas_are_good(update->dtype, deltas, update->width, updater->largest))
        return true;
    if (bad_gradients_count(&updater->bad, worker, update->dtype, deltas, update->width,
                            updater->largest, refuses) &&
        updater->say_no_number != NULL)
        updater->say_no_number(updater->user, worker);
    return !refuses;
}

/* Whether all rows of deltas are good; without `at` they are consecutive. */
static bool all_are_good(const Updater *updater, const unsigned char *deltas, const uint32_t *at,
                         size_t n)
{
    const RubatoUpdate *update = &updater->update;
    bool good = true;

    if (at == NULL)
        return deltas_are_good(update->dtype, deltas, n * update->width, updater->largest);
    for (size_t i = 0; i < n; i++)
        good &= deltas_are_good(update->dtype, deltas + at[i] * updater->value_bytes, update->width,
                                updater->largest);
    return good;
}

bool updater_accepts_all(const Updater *updater, const void *deltas, size_t n)
{
    return updater->update.rule.on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED ||
           all_are_good(updater, deltas, NULL, n);
}

/* Applies rows with a bad delta among them. */
static void apply_looking(Updater *updater, uint32_t worker, void *const *rows,
                          const unsigned char *deltas, const uint32_t *at, size_t n)
{
    void *good_rows[BLOCK];
    uint32_t good_at[BLOCK];
    size_t n_good = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t row = at == NULL ? (uint32_t)i : at[i];

        if (!updater_accepts(updater, worker, deltas + row * updater->value_bytes))
            continue;
        good_rows[n_good] = rows[i];
        good_at[n_good++] = row;
    }
    apply(updater, good_rows, deltas, good_at, n_good);
}

/* ---- the calls ---- */

void updater_apply_rows(Updater *updater, uint32_t worker, void *const *rows, const void *deltas,
                        const uint32_t *at, size_t n)
{
    const unsigned char *bytes = deltas;
    const size_t most = MAX(1, PIECE_BYTES / updater->value_bytes);

    if (updater->is_plain) {
        updater->ops->apply_rows(&updater->update, rows, deltas, at, n);
        return;
    }
    if (updater->update.rule.on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED) {
        apply(updater, rows, deltas, at, n);
        return;
    }
    for (size_t begin = 0; begin < n; begin += most) {
        const unsigned char *from = at == NULL ? bytes + begin * updater->value_bytes : bytes;
        const uint32_t *some_at = at == NULL ? NULL : at + begin;
        const size_t some = MIN(n - begin, most);

        if (all_are_good(updater, from, some_at, some))
            apply(updater, rows + begin, from, some_at, some);
        else
            apply_looking(updater, worker, rows + begin, from, some_at, some);
    }
}

/* A run in blocks of rows. */
static void apply_run_by_rows(Updater *updater, uint32_t worker, unsigned char *values,
                              const unsigned char *deltas, size_t n)
{
    void *rows[BLOCK];

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(n - begin, BLOCK);

        for (size_t i = 0; i < some; i++)
            rows[i] = values + (begin + i) * updater->row_bytes;
        updater_apply_rows(updater, worker, rows, deltas + begin * updater->value_bytes, NULL,
                           some);
    }
}

void updater_apply_run(Updater *updater, uint32_t worker, void *rows, const void *deltas, size_t n)
{
    const RubatoUpdate *update = &updater->update;
    const size_t most = MAX(1, PIECE_BYTES / updater->value_bytes);
    const unsigned char *from = deltas;
    unsigned char *to = rows;

    if (updater->ops->apply == NULL || updater->prepares) {
        apply_run_by_rows(updater, worker, rows, deltas, n);
        return;
    }
    if (updater->is_plain) {
        updater->ops->apply(update, rows, deltas, n * update->width);
        return;
    }
    for (size_t begin = 0; begin < n; begin += most) {
        const size_t some = MIN(n - begin, most), offset = begin * updater->value_bytes;

        if (all_are_good(updater, from + offset, NULL, some))
            updater->ops->apply(update, to + offset, from + offset, some * update->width);
        else
            apply_run_by_rows(updater, worker, to + offset, from + offset, some);
    }
}

void updater_apply_accepted(Updater *updater, void *const *rows, const void *deltas, size_t n)
{
    apply(updater, rows, deltas, NULL, n);
}
