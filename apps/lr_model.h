/* Logistic regression on sparse rows: the arithmetic, without tables.
 *
 * Weights are known by key: 0 is the bias, key i the weight of column i.
 *
 * Threads: any; a batch from one. */
#ifndef RUBATO_APPS_LR_MODEL_H
#define RUBATO_APPS_LR_MODEL_H

#include <rubato/rubato.h>

#define LR_BIAS_KEY 0

/* The two labels that the rows have: the larger is the positive one. */
typedef struct {
    float negative, positive;
} LrLabels;

/* RUBATO_ERROR_FORMAT where rows have more or fewer than two; path is for the message. */
bool lr_find_labels(const RubatoRows *rows, const char *path, LrLabels *labels, GError **error);

/* RUBATO_ERROR_FORMAT where rows have others. */
bool lr_check_labels(const RubatoRows *rows, const char *path, const LrLabels *labels,
                     GError **error);

/* The keys that some rows use: ascending, each once, the bias always among them; none for no
 * rows. */
void lr_collect_keys(const RubatoRows *rows, const uint64_t *which, size_t n,
                     GArray /* of RubatoKey */ *keys);

/* Given the weights of just these keys, writes scale × the gradient over the rows, the penalty
 * included, into gradient, and returns the sum of the rows' losses without it. The penalty is
 * l2 / 2 × the squares of the weights that a row uses (the bias apart), per row. */
double lr_gradient(const RubatoRows *rows, const LrLabels *labels, const uint64_t *which, size_t n,
                   const RubatoKey *keys, const float *weights, size_t n_keys, double l2,
                   double scale, float *gradient);

/* Writes w·x of n rows from `first` on to their places in scores, given the weights of their keys. */
void lr_score(const RubatoRows *rows, size_t first, size_t n, const RubatoKey *keys,
              const float *weights, size_t n_keys, double *scores);

typedef struct {
    double logloss, accuracy;
    double auc; /* NaN where all labels are the same */
} LrRating;

/* How good the scores of all rows are. */
bool lr_rate(const RubatoRows *rows, const LrLabels *labels, const double *scores, LrRating *rating,
             GError **error);

#endif
