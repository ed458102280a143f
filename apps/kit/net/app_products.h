/* Products of matrices: OpenBLAS's, or plain loops where it was not there when this was built.
 *
 * Matrices are stored row by row. That of a layer's weights has a row for each unit: its bias, and
 * then a weight for each input. So it is one value longer than a row of inputs.
 *
 * Threads: any; each product is computed by the thread that asks for it. */
#ifndef RUBATO_APPS_KIT_NET_APP_PRODUCTS_H
#define RUBATO_APPS_KIT_NET_APP_PRODUCTS_H

#include <stddef.h>

/* Before any product, and before the engine: OpenBLAS has no threads of its own from now on. */
void app_products_begin(void);

/* outputs (n_rows × n_units) = biases + inputs (n_rows × n_inputs) · weightsᵀ. */
void app_products_forward(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                          const float *weights, float *outputs);

/* gradient, shaped as the weights are, from the slopes of the outputs (n_rows × n_units). */
void app_products_gradient(size_t n_rows, size_t n_inputs, size_t n_units, const float *inputs,
                           const float *slopes, float *gradient);

/* The slopes of the inputs (n_rows × n_inputs) from those of the outputs. */
void app_products_backward(size_t n_rows, size_t n_inputs, size_t n_units, const float *slopes,
                           const float *weights, float *input_slopes);

#endif
