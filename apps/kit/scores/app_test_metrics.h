/* How good scores of rows are, by their labels.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_TEST_METRICS_H
#define RUBATO_APPS_KIT_SCORES_APP_TEST_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include <rubato/error.h>

/* The metrics of scores; a score above 0 predicts the positive label. */
typedef struct {
    double logloss;  /* the mean of log(1 + exp(−±score)) */
    double accuracy; /* the share of scores on the right side */
    double auc;      /* NaN if all labels are the same */
} AppTestMetrics;

/* Rows whose label is `positive` or more are positive, all others negative. n is at least 1.
 * RUBATO_ERROR_MEMORY. */
bool app_test_metrics_of(const double *scores, const float *labels, float positive, size_t n,
                         AppTestMetrics *metrics, GError **error);

/* The root of the mean of (score − label)². */
double app_test_rmse(const double *scores, const float *labels, size_t n);

#endif
