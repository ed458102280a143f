/* The curve of a training run: loss and metric over time, smoothed, and thinned as it gets long.
 *
 * Threads: one at a time. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_CURVE_H
#define RUBATO_APPS_KIT_REPORT_APP_CURVE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double seconds; /* since training began */
    double epoch;   /* passes over the data, with their fractions */
    double loss, metric;
} AppCurvePoint;

typedef struct {
    GArray *points;              /* of AppCurvePoint */
    double n_epoch;              /* rows of an epoch */
    double n_rows;               /* so far */
    double loss_sum, metric_sum; /* so far, over all rows */
    double weight, loss, metric; /* of the last rows: the older, the less they weigh */
} AppCurve;

void app_curve_init(AppCurve *curve, uint64_t rows_of_epoch);
void app_curve_clear(AppCurve *curve);

/* Adds a point: the time, rows so far, and the sums over them of loss and metric. */
void app_curve_take(AppCurve *curve, double seconds, double n_rows, double loss_sum,
                    double metric_sum);

/* The same once training has ended: the curve's last point. */
void app_curve_end(AppCurve *curve, double seconds, double n_rows, double loss_sum,
                   double metric_sum);

/* The mean loss of about the last eighth of an epoch, later rows weighing more; NaN as long as
 * there were fewer. */
double app_curve_loss(const AppCurve *curve);

#endif
