/* The test rows are those that come after the rows to train on. */
#include "tests/support/data/factor_files.h"

#include <glib.h>

#include "apps/kit/scores/app_test_metrics.h"

bool factor_files_write(FactorFiles *files, const FactorRows *spec, const char *dir,
                        const char *suffix, size_t n_train, size_t n_test)
{
    g_autofree double *scores = g_new(double, n_test);
    g_autofree double *drawn = g_new(double, n_test);
    g_autofree float *labels = g_new(float, n_test);
    AppTestMetrics metrics;

    files->train = g_strdup_printf("%s/train-%s", dir, suffix);
    files->test = g_strdup_printf("%s/test-%s", dir, suffix);
    if (!factor_rows_write(spec, files->train, 0, n_train, NULL, NULL) ||
        !factor_rows_write(spec, files->test, n_train, n_test, scores, drawn))
        return false;
    for (size_t i = 0; i < n_test; i++)
        labels[i] = (float)drawn[i];
    if (!app_test_metrics_of(scores, labels, 1, n_test, &metrics, NULL))
        return false;
    files->true_auc = metrics.auc;
    return true;
}

void factor_files_clear(FactorFiles *files)
{
    g_clear_pointer(&files->train, g_free);
    g_clear_pointer(&files->test, g_free);
}
