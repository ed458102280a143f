/* Smooths and thins a curve. Pure arithmetic. */
#include "apps/kit/report/app_curve.h"

#include <math.h>

#define WINDOWS_OF_EPOCH 8
#define POINTS_BY_SHARE 80 /* a point for each such share of the time that has passed */
#define POINT_LEAST_SECONDS 0.004

void app_curve_init(AppCurve *curve, uint64_t rows_of_epoch)
{
    app_curve_clear(curve);
    *curve = (AppCurve){ .points = g_array_new(FALSE, FALSE, sizeof(AppCurvePoint)),
                         .n_epoch = (double)MAX(rows_of_epoch, 1) };
}

void app_curve_clear(AppCurve *curve)
{
    g_clear_pointer(&curve->points, g_array_unref);
}

/* Rows weigh e^(−their distance / window). n new rows, of which only the sum is known, reduce the
 * weight of the older ones. */
static double window(const AppCurve *curve)
{
    return MAX(curve->n_epoch / WINDOWS_OF_EPOCH, 1);
}

static bool is_time(const AppCurve *curve, double seconds)
{
    const guint n = curve->points->len;

    if (n == 0)
        return true;
    const double last = g_array_index(curve->points, AppCurvePoint, n - 1).seconds;
    return seconds - last >= MAX(POINT_LEAST_SECONDS, last / POINTS_BY_SHARE);
}

static void weigh(AppCurve *curve, double n_rows, double loss_sum, double metric_sum)
{
    const double n = n_rows - curve->n_rows;

    if (n <= 0)
        return;
    const double kept = exp(-n / window(curve));
    const double share = (1 - kept) * window(curve) / n; /* of a new row, on the average */

    curve->weight = curve->weight * kept + n * share;
    curve->loss = curve->loss * kept + (loss_sum - curve->loss_sum) * share;
    curve->metric = curve->metric * kept + (metric_sum - curve->metric_sum) * share;
    curve->n_rows = n_rows;
    curve->loss_sum = loss_sum;
    curve->metric_sum = metric_sum;
}

static void add_point(AppCurve *curve, double seconds)
{
    const AppCurvePoint point = { .seconds = seconds,
                                  .epoch = curve->n_rows / curve->n_epoch,
                                  .loss = curve->loss / curve->weight,
                                  .metric = curve->metric / curve->weight };

    g_array_append_val(curve->points, point);
}

void app_curve_take(AppCurve *curve, double seconds, double n_rows, double loss_sum,
                    double metric_sum)
{
    weigh(curve, n_rows, loss_sum, metric_sum);
    if (curve->weight > 0 && is_time(curve, seconds))
        add_point(curve, seconds);
}

void app_curve_end(AppCurve *curve, double seconds, double n_rows, double loss_sum,
                   double metric_sum)
{
    weigh(curve, n_rows, loss_sum, metric_sum);
    if (curve->weight > 0)
        add_point(curve, seconds);
}

double app_curve_loss(const AppCurve *curve)
{
    return curve->n_rows >= window(curve) ? curve->loss / curve->weight : (double)NAN;
}
