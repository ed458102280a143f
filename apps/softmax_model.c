/* Softmax regression: loss is the cross entropy −log p(label), its gradient with respect to the
 * logits p − onehot(label) (C. Bishop, Pattern Recognition and Machine Learning, 2006, §4.3.4).
 *
 * The inner loops run over the classes of one pixel's row, which lie side by side; for ten classes,
 * by far the most usual number, the compiler gets to see that number. Black pixels are skipped:
 * they are half of all. Pure functions. */
#include "apps/softmax_model.h"

#include <math.h>
#include <string.h>

#define CLASSES_MAX 256 /* labels are bytes */
#define CLASSES_USUAL 10

static inline __attribute__((always_inline)) void add_scaled(float *restrict to, float factor,
                                                             const float *restrict from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

static inline __attribute__((always_inline)) void logits_of(const float *weights,
                                                            uint32_t n_classes,
                                                            const uint8_t *pixels, size_t n_pixels,
                                                            float *logits)
{
    memcpy(logits, weights + n_pixels * n_classes, n_classes * sizeof *logits);
    for (size_t i = 0; i < n_pixels; i++)
        if (pixels[i] != 0)
            add_scaled(logits, (float)pixels[i] * (1.0f / 255), weights + i * n_classes, n_classes);
}

/* Turns logits into probabilities; returns the loss for a label. Infinite loss, which only weights
 * that have run away can give, shows as such. */
static double softmax(float *logits, uint32_t n_classes, uint32_t label)
{
    float largest = logits[0], sum = 0;

    for (uint32_t c = 1; c < n_classes; c++)
        largest = MAX(largest, logits[c]);
    const float own = logits[label] - largest;
    for (uint32_t c = 0; c < n_classes; c++) {
        logits[c] = expf(logits[c] - largest);
        sum += logits[c];
    }
    for (uint32_t c = 0; c < n_classes; c++)
        logits[c] /= sum;
    return log((double)sum) - (double)own;
}

static inline __attribute__((always_inline)) double gradient_of(const float *weights,
                                                                uint32_t n_classes,
                                                                const RubatoImages *images,
                                                                const uint64_t *rows, size_t n,
                                                                float scale, float *gradient)
{
    const size_t n_pixels = (size_t)images->height * images->width;
    float errors[CLASSES_MAX];
    double loss = 0;

    memset(gradient, 0, (n_pixels + 1) * n_classes * sizeof *gradient);
    for (size_t k = 0; k < n; k++) {
        const uint8_t *pixels = images->pixels + rows[k] * n_pixels;
        const uint8_t label = images->labels[rows[k]];

        logits_of(weights, n_classes, pixels, n_pixels, errors);
        loss += softmax(errors, n_classes, label);
        errors[label] -= 1;
        for (uint32_t c = 0; c < n_classes; c++)
            errors[c] *= scale;
        for (size_t i = 0; i < n_pixels; i++)
            if (pixels[i] != 0)
                add_scaled(gradient + i * n_classes, (float)pixels[i] * (1.0f / 255), errors,
                           n_classes);
        add_scaled(gradient + n_pixels * n_classes, 1, errors, n_classes);
    }
    return loss;
}

size_t softmax_n_inputs(const RubatoImages *images)
{
    return (size_t)images->height * images->width + 1;
}

double softmax_gradient(const float *weights, uint32_t n_classes, const RubatoImages *images,
                        const uint64_t *rows, size_t n, float scale, float *gradient)
{
    if (n_classes == CLASSES_USUAL)
        return gradient_of(weights, CLASSES_USUAL, images, rows, n, scale, gradient);
    return gradient_of(weights, n_classes, images, rows, n, scale, gradient);
}

void softmax_evaluate(const float *weights, uint32_t n_classes, const RubatoImages *images,
                      double *loss, double *accuracy)
{
    const size_t n_pixels = (size_t)images->height * images->width;
    size_t n_right = 0;
    double sum = 0;

    for (size_t k = 0; k < images->n_images; k++) {
        const uint8_t *pixels = images->pixels + k * n_pixels;
        float logits[CLASSES_MAX];
        uint32_t best = 0;

        if (n_classes == CLASSES_USUAL)
            logits_of(weights, CLASSES_USUAL, pixels, n_pixels, logits);
        else
            logits_of(weights, n_classes, pixels, n_pixels, logits);
        for (uint32_t c = 1; c < n_classes; c++)
            if (logits[c] > logits[best])
                best = c;
        n_right += best == images->labels[k];
        sum += softmax(logits, n_classes, images->labels[k]);
    }
    *loss = sum / (double)images->n_images;
    *accuracy = (double)n_right / (double)images->n_images;
}
