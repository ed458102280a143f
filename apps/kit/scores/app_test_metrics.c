/* Measures of scores. Pure functions. */
#include "apps/kit/scores/app_test_metrics.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double score;
    bool positive;
} Scored;

static int compare_scores(const void *a, const void *b)
{
    const Scored *left = a, *right = b;

    return (left->score > right->score) - (left->score < right->score);
}

/* The share of pairs of a positive and a negative row that the scores order rightly, ties counting
 * half: from the sum of the positives' ranks (J. Hanley, B. McNeil, 1982). */
static double auc_of(Scored *scored, size_t n)
{
    double rank_sum = 0;
    size_t n_positive = 0;

    qsort(scored, n, sizeof *scored, compare_scores);
    for (size_t begin = 0, end; begin < n; begin = end) {
        size_t n_tied_positive = 0;

        end = begin;
        do
            n_tied_positive += scored[end++].positive;
        while (end < n && scored[end].score <= scored[begin].score);
        rank_sum += (double)n_tied_positive * ((double)(begin + end) + 1) / 2;
        n_positive += n_tied_positive;
    }
    const double positives = (double)n_positive, negatives = (double)(n - n_positive);
    if (n_positive == 0 || n_positive == n)
        return (double)NAN;
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

/* log(1 + exp(−margin)), without overflow. */
static double logistic_loss(double margin)
{
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

bool app_test_metrics_of(const double *scores, const float *labels, float positive, size_t n,
                         AppTestMetrics *metrics, GError **error)
{
    g_autofree Scored *scored = g_try_new(Scored, n);
    size_t n_right = 0;
    double loss = 0;

    if (scored == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory to rate %zu rows", n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        scored[i] = (Scored){ .score = scores[i], .positive = labels[i] >= positive };
        n_right += (scores[i] > 0) == scored[i].positive;
        loss += logistic_loss(scored[i].positive ? scores[i] : -scores[i]);
    }
    *metrics = (AppTestMetrics){ .logloss = loss / (double)n,
                                 .accuracy = (double)n_right / (double)n,
                                 .auc = auc_of(scored, n) };
    return true;
}

double app_test_rmse(const double *scores, const float *labels, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        const double error = scores[i] - (double)labels[i];

        sum += error * error;
    }
    return sqrt(sum / (double)n);
}
