/* Stochastic gradients of single ratings. Pure functions.
 *
 * With e the error of the rating, the gradient of a user's factors is g = l2 × p − e × q. The sum
 * of its squares, which adagrad needs, follows from p · q, p · p and q · q. So a rating takes two
 * passes over the two rows: one for these, and one that moves both. */
#include "apps/mf/mf_model.h"

#include <math.h>
#include <rubato/mix.h>
#include <rubato/vector_clones.h>

#define LANES 8
#define AHEAD 4 /* ratings whose rows are fetched into the cache */

#define KERNEL static inline __attribute__((always_inline))

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* ---- first values ---- */

/* About normal: the sum of four even numbers, with deviation 1. */
static double draw_normal(uint64_t seed)
{
    const uint64_t bits = rubato_mix64(seed);
    double sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += (double)(bits >> (16 * i) & 0xffff) / 0xffff - 0.5;
    return sum * sqrt(3);
}

void mf_begin_rows(const MfModel *model, const RubatoKey *keys, size_t n, float *rows)
{
    const size_t width = MF_WIDTH(model->n_factors);

    for (size_t i = 0; i < n; i++) {
        float *row = rows + i * width;
        const uint64_t seed = rubato_mix64(rubato_mix64(model->seed + 1) ^ keys[i]);

        if (row[MF_SQUARES] > 0)
            continue;
        row[MF_BIAS_SQUARES] = 1;
        row[MF_SQUARES] = 1;
        for (uint32_t f = 0; f < model->n_factors; f++)
            row[MF_FACTORS + f] = (float)(model->init_stddev * draw_normal(seed + f));
    }
}

/* ---- learning ---- */

typedef struct {
    float mean, l2, l2_bias, rate;
    bool steps_are_even;
} Terms;

KERNEL float sum_lanes(const Lanes *lanes)
{
    float sum = 0;

    for (int i = 0; i < LANES; i++)
        sum += (*lanes)[i];
    return sum;
}

typedef struct {
    float pq, pp, qq;
} Products;

KERNEL Products multiply(const float *p, const float *q, size_t k)
{
    Lanes pq = { 0 }, pp = { 0 }, qq = { 0 };
    size_t f = 0;

    for (; f + LANES <= k; f += LANES) {
        const Lanes a = *(const Lanes *)(const void *)(p + f);
        const Lanes b = *(const Lanes *)(const void *)(q + f);

        pq += a * b;
        pp += a * a;
        qq += b * b;
    }
    Products products = { sum_lanes(&pq), sum_lanes(&pp), sum_lanes(&qq) };
    for (; f < k; f++) {
        products.pq += p[f] * q[f];
        products.pp += p[f] * p[f];
        products.qq += q[f] * q[f];
    }
    return products;
}

/* p and q move against their gradients. */
KERNEL void move(float *restrict p, float *restrict q, size_t k, float error, float l2,
                 float p_rate, float q_rate)
{
    const float p_keeps = 1 - p_rate * l2, q_keeps = 1 - q_rate * l2;
    const float p_takes = p_rate * error, q_takes = q_rate * error;
    size_t f = 0;

    for (; f + LANES <= k; f += LANES) {
        const Lanes a = *(const Lanes *)(const void *)(p + f);
        const Lanes b = *(const Lanes *)(const void *)(q + f);

        *(Lanes *)(void *)(p + f) = a * p_keeps + b * p_takes;
        *(Lanes *)(void *)(q + f) = b * q_keeps + a * q_takes;
    }
    for (; f < k; f++) {
        const float a = p[f], b = q[f];

        p[f] = a * p_keeps + b * p_takes;
        q[f] = b * q_keeps + a * q_takes;
    }
}

KERNEL float step_of(const Terms *terms, float *squares, float square)
{
    if (terms->steps_are_even)
        return terms->rate;
    *squares += square;
    return terms->rate / sqrtf(*squares);
}

KERNEL void move_bias(const Terms *terms, float *row, float error)
{
    const float slope = terms->l2_bias * row[MF_BIAS] - error;

    row[MF_BIAS] -= step_of(terms, &row[MF_BIAS_SQUARES], slope * slope) * slope;
}

KERNEL float learn_rating(const Terms *terms, float *restrict user, float *restrict item,
                          float rating, size_t k)
{
    const Products products = multiply(user + MF_FACTORS, item + MF_FACTORS, k);
    const float score = terms->mean + user[MF_BIAS] + item[MF_BIAS] + products.pq;
    const float error = rating - score, l2 = terms->l2;
    const float ee = error * error, el = 2 * error * l2 * products.pq, ll = l2 * l2;
    const float share = 1 / (float)k;
    const float user_square = (ee * products.qq - el + ll * products.pp) * share;
    const float item_square = (ee * products.pp - el + ll * products.qq) * share;

    move(user + MF_FACTORS, item + MF_FACTORS, k, error, l2,
         step_of(terms, &user[MF_SQUARES], user_square),
         step_of(terms, &item[MF_SQUARES], item_square));
    move_bias(terms, user, error);
    move_bias(terms, item, error);
    return ee;
}

KERNEL double learn_ratings(const Terms *terms, const MfRating *ratings, size_t n, float *users,
                            float *items, size_t k)
{
    const size_t width = MF_WIDTH(k);
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            const float *user = users + ratings[i + AHEAD].user * width;
            const float *item = items + ratings[i + AHEAD].item * width;

            for (size_t f = 0; f < width; f += 16) {
                __builtin_prefetch(user + f, 1);
                __builtin_prefetch(item + f, 1);
            }
        }
        sum += (double)learn_rating(terms, users + ratings[i].user * width,
                                    items + ratings[i].item * width, ratings[i].rating, k);
    }
    return sum;
}

/* The usual numbers of factors have loops of a constant length. */
RUBATO_VECTOR_CLONES
static double learn(const Terms *terms, const MfRating *ratings, size_t n, float *users,
                    float *items, size_t k)
{
    switch (k) {
    case 8:
        return learn_ratings(terms, ratings, n, users, items, 8);
    case 16:
        return learn_ratings(terms, ratings, n, users, items, 16);
    case 32:
        return learn_ratings(terms, ratings, n, users, items, 32);
    case 64:
        return learn_ratings(terms, ratings, n, users, items, 64);
    default:
        return learn_ratings(terms, ratings, n, users, items, k);
    }
}

double mf_learn(const MfModel *model, double rate, const MfRating *ratings, size_t n, float *users,
                float *items)
{
    const Terms terms = { (float)model->mean, (float)model->l2, (float)model->l2_bias, (float)rate,
                          model->steps_are_even };

    return learn(&terms, ratings, n, users, items, model->n_factors) / 2;
}

double mf_score(const MfModel *model, const float *user, const float *item)
{
    double score = model->mean + (double)user[MF_BIAS] + (double)item[MF_BIAS];

    for (size_t f = MF_FACTORS; f < MF_WIDTH(model->n_factors); f++)
        score += (double)user[f] * (double)item[f];
    return score;
}
