/* Logistic regression: the loss of a row is log(1 + exp(−y · w·x)) with y = ±1, its gradient
 * (σ(w·x) − [y = 1]) · x. Pure functions. */
#include "apps/lr_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool label_fault(const char *path, size_t row, const char *expected, float label,
                        GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: row %zu: expected %s, found label %g", path, row + 1, expected, (double)label);
    return false;
}

bool lr_find_labels(const RubatoRows *rows, const char *path, LrLabels *labels, GError **error)
{
    float low = rows->label[0], high = rows->label[0];

    for (size_t i = 1; i < rows->n_rows; i++) {
        low = MIN(low, rows->label[i]);
        high = MAX(high, rows->label[i]);
    }
    if (!(low < high)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: expected two labels, such as -1 and 1; all rows have label %g", path,
                    (double)low);
        return false;
    }
    *labels = (LrLabels){ .negative = low, .positive = high };
    return lr_check_labels(rows, path, labels, error);
}

bool lr_check_labels(const RubatoRows *rows, const char *path, const LrLabels *labels,
                     GError **error)
{
    for (size_t i = 0; i < rows->n_rows; i++)
        if (!(rows->label[i] <= labels->negative && rows->label[i] >= labels->negative) &&
            !(rows->label[i] <= labels->positive && rows->label[i] >= labels->positive)) {
            char expected[96];

            g_snprintf(expected, sizeof expected, "one of two labels, %g or %g",
                       (double)labels->negative, (double)labels->positive);
            return label_fault(path, i, expected, rows->label[i], error);
        }
    return true;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

void lr_collect_keys(const RubatoRows *rows, const uint64_t *which, size_t n, GArray *keys)
{
    g_array_set_size(keys, 0);
    if (n == 0)
        return;

    const RubatoKey bias = LR_BIAS_KEY;
    g_array_append_val(keys, bias);
    for (size_t i = 0; i < n; i++)
        for (size_t k = rows->row_start[which[i]]; k < rows->row_start[which[i] + 1]; k++) {
            const RubatoKey key = rows->key[k];

            g_array_append_val(keys, key);
        }
    qsort(keys->data, keys->len, sizeof(RubatoKey), compare_keys);

    RubatoKey *sorted = (RubatoKey *)(void *)keys->data;
    guint n_unique = 0;
    for (guint i = 0; i < keys->len; i++)
        if (n_unique == 0 || sorted[i] != sorted[n_unique - 1])
            sorted[n_unique++] = sorted[i];
    g_array_set_size(keys, n_unique);
}

/* Where a key stands among the sorted keys; it is there, and not before `from`. */
static size_t find_key(const RubatoKey *keys, size_t n_keys, size_t from, RubatoKey key)
{
    size_t low = from, high = n_keys;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (keys[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* log(1 + exp(−margin)), without overflow. */
static double loss_of(double margin)
{
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

static double probability_of(double score)
{
    return 1 / (1 + exp(-score));
}

static bool is_positive(const LrLabels *labels, float label)
{
    return label >= labels->positive;
}

double lr_gradient(const RubatoRows *rows, const LrLabels *labels, const uint64_t *which, size_t n,
                   const RubatoKey *keys, const float *weights, size_t n_keys, double l2,
                   double scale, float *gradient)
{
    double loss = 0;

    memset(gradient, 0, n_keys * sizeof *gradient);
    for (size_t i = 0; i < n; i++) {
        const size_t begin = rows->row_start[which[i]], end = rows->row_start[which[i] + 1];
        const bool positive = is_positive(labels, rows->label[which[i]]);
        double score = (double)weights[0];
        size_t at = 0;

        for (size_t k = begin; k < end; k++) {
            at = find_key(keys, n_keys, at, rows->key[k]);
            score += (double)weights[at] * (double)rows->value[k];
        }
        const double error = probability_of(score) - (positive ? 1 : 0);
        loss += loss_of(positive ? score : -score);

        gradient[0] += (float)(scale * error);
        at = 0;
        for (size_t k = begin; k < end; k++) {
            at = find_key(keys, n_keys, at, rows->key[k]);
            gradient[at] +=
                (float)(scale * (error * (double)rows->value[k] + l2 * (double)weights[at]));
        }
    }
    return loss;
}

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

void lr_score(const RubatoRows *rows, size_t first, size_t n, const RubatoKey *keys,
              const float *weights, size_t n_keys, double *scores)
{
    for (size_t i = first; i < first + n; i++) {
        double score = (double)weights[0];
        size_t at = 0;

        for (size_t k = rows->row_start[i]; k < rows->row_start[i + 1]; k++) {
            at = find_key(keys, n_keys, at, rows->key[k]);
            score += (double)weights[at] * (double)rows->value[k];
        }
        scores[i] = score;
    }
}

bool lr_rate(const RubatoRows *rows, const LrLabels *labels, const double *scores, LrRating *rating,
             GError **error)
{
    g_autofree Scored *scored = g_try_new(Scored, rows->n_rows);
    size_t n_right = 0;
    double loss = 0;

    if (scored == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory to rate %zu rows",
                    rows->n_rows);
        return false;
    }
    for (size_t i = 0; i < rows->n_rows; i++) {
        const bool positive = is_positive(labels, rows->label[i]);

        scored[i] = (Scored){ .score = scores[i], .positive = positive };
        n_right += (scores[i] > 0) == positive;
        loss += loss_of(positive ? scores[i] : -scores[i]);
    }
    rating->logloss = loss / (double)rows->n_rows;
    rating->accuracy = (double)n_right / (double)rows->n_rows;
    rating->auc = auc_of(scored, rows->n_rows);
    return true;
}
