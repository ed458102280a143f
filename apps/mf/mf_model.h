/* Matrix factorisation with biases: the arithmetic, without tables.
 *
 * A user u and an item i have the rating mean + b_u + b_i + p_u · q_i. A row of the table has a
 * user or an item: its bias, the two sums of squares of adagrad, and its factors.
 *
 * Adagrad has one sum for all factors of a row, and one for its bias: it takes the mean of the
 * squares of the gradients (W. Chin and others: A learning-rate schedule for stochastic gradient
 * methods to matrix factorization, PAKDD 2015).
 *
 * Threads: any; a row has one at a time. */
#ifndef RUBATO_APPS_MF_MF_MODEL_H
#define RUBATO_APPS_MF_MF_MODEL_H

#include <rubato/data.h>

#define MF_FACTORS_MAX 1024

/* What stands in front of the factors of a row. */
enum { MF_BIAS, MF_BIAS_SQUARES, MF_SQUARES, MF_FACTORS };

#define MF_WIDTH(n_factors) ((size_t)(n_factors) + MF_FACTORS)

typedef struct {
    uint32_t n_factors;
    double mean;         /* of all ratings */
    double l2, l2_bias;  /* penalties on squares: half of them times each, for each rating */
    double init_stddev;  /* of factors */
    uint64_t seed;       /* of their first values */
    bool steps_are_even; /* sgd: adagrad's sums are not looked at */
} MfModel;

/* A rating, and where its rows are. */
typedef struct {
    uint32_t user, item;
    float rating;
} MfRating;

/* Gives first values to rows that are new, which have no sum of squares yet. */
void mf_begin_rows(const MfModel *model, const RubatoKey *keys, size_t n, float *rows);

/* Learns from n ratings, one after the other. Returns the sum of half the squares of the errors,
 * each before its rating was learned. */
double mf_learn(const MfModel *model, double rate, const MfRating *ratings, size_t n, float *users,
                float *items);

/* The rating of a user and an item. */
double mf_score(const MfModel *model, const float *user, const float *item);

#endif
