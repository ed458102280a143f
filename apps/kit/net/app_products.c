/* The products: three calls of OpenBLAS, or three loops. */
#include "apps/kit/net/app_products.h"

#include <string.h>

#ifdef RUBATO_HAS_OPENBLAS
#include <cblas.h>
#endif

/* Each row of outputs begins with the biases. */
static void put_biases(size_t n_rows, size_t n_inputs, size_t n_units, const float *weights,
                       float *outputs)
{
    for (size_t u = 0; u < n_units; u++)
        outputs[u] = weights[u * (n_inputs + 1)];
    for (size_t r = 1; r < n_rows; r++)
        memcpy(outputs + r * n_units, outputs, n_units * sizeof *outputs);
}

static void sum_biases(size_t n_rows, size_t n_inputs, size_t n_units, const float *slopes,
                       float *gradient)
{
    for (size_t u = 0; u < n_units; u++) {
        float sum = 0;

        for (size_t r = 0; r < n_rows; r++)
            sum += slopes[r * n_units + u];
        gradient[u * (n_inputs + 1)] = sum;
    }
}

#ifdef RUBATO_HAS_OPENBLAS

/* OpenBLAS calls it before a fork. A build of it without threads has none. */
extern int blas_thread_shutdown_(void) __attribute__((weak));

/* It has started threads as it was loaded, before anybody could say how many it needs. They do not
 * block the signals that the engine waits for, so one of these would end the process at once. */
void app_products_begin(void)
{
    openblas_set_num_threads(1);
    if (blas_thread_shutdown_ != NULL)
        (void)blas_thread_shutdown_();
}

void app_products_forward(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                          const float *weights, float *outputs)
{
    const blasint rows = (blasint)n_rows, in = (blasint)n_inputs, units = (blasint)n_units;

    if (n_rows == 0)
        return;
    put_biases(n_rows, n_inputs, n_units, weights, outputs);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, units, in, 1, inputs, in,
                weights + 1, in + 1, 1, outputs, units);
}

void app_products_gradient(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                           const float *slopes, float *gradient)
{
    const blasint rows = (blasint)n_rows, in = (blasint)n_inputs, units = (blasint)n_units;

    if (n_rows == 0) {
        memset(gradient, 0, n_units * (n_inputs + 1) * sizeof *gradient);
        return;
    }
    sum_biases(n_rows, n_inputs, n_units, slopes, gradient);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, units, in, rows, 1, slopes, units, inputs,
                in, 0, gradient + 1, in + 1);
}

void app_products_backward(size_t n_rows, size_t n_inputs, size_t n_units, const float *slopes,
                           const float *weights, float *input_slopes)
{
    const blasint rows = (blasint)n_rows, in = (blasint)n_inputs, units = (blasint)n_units;

    if (n_rows > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in, units, 1, slopes, units,
                    weights + 1, in + 1, 0, input_slopes, in);
}

#else

#define N_SUMS 8 /* which a compiler keeps in one register */

void app_products_begin(void)
{
}

static void add_scaled(float *sum, float factor, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += factor * values[i];
}

static float dot(const float *a, const float *b, size_t n)
{
    float sums[N_SUMS] = { 0 }, sum = 0;
    size_t i = 0;

    for (; i + N_SUMS <= n; i += N_SUMS)
        for (size_t j = 0; j < N_SUMS; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t j = 0; j < N_SUMS; j++)
        sum += sums[j];
    return sum;
}

void app_products_forward(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                          const float *weights, float *outputs)
{
    if (n_rows == 0)
        return;
    put_biases(n_rows, n_inputs, n_units, weights, outputs);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t u = 0; u < n_units; u++)
            outputs[r * n_units + u] +=
                dot(inputs + r * n_inputs, weights + u * (n_inputs + 1) + 1, n_inputs);
}

void app_products_gradient(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                           const float *slopes, float *gradient)
{
    memset(gradient, 0, n_units * (n_inputs + 1) * sizeof *gradient);
    sum_biases(n_rows, n_inputs, n_units, slopes, gradient);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t u = 0; u < n_units; u++)
            add_scaled(gradient + u * (n_inputs + 1) + 1, slopes[r * n_units + u],
                       inputs + r * n_inputs, n_inputs);
}

void app_products_backward(size_t n_rows, size_t n_inputs, size_t n_units, const float *slopes,
                           const float *weights, float *input_slopes)
{
    if (n_rows > 0)
        memset(input_slopes, 0, n_rows * n_inputs * sizeof *input_slopes);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t u = 0; u < n_units; u++)
            add_scaled(input_slopes + r * n_inputs, slopes[r * n_units + u],
                       weights + u * (n_inputs + 1) + 1, n_inputs);
}

#endif
