/* Softmax regression: loss is the cross entropy −log p(label), its gradient with respect to the
 * logits p − onehot(label) (C. Bishop, Pattern Recognition and Machine Learning, 2006, §4.3.4).
 *
 * The inner loops run over the classes of one pixel's row, which lie side by side; for ten classes,
 * by far the most usual number, the loops have a constant length. Black pixels are skipped: they
 * are half of all. Pure functions. */
#include "apps/softmax/softmax_model.h"

#include <math.h>
#include <string.h>

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

static uint32_t likeliest(const float *logits, uint32_t n_classes)
{
    uint32_t best = 0;

    for (uint32_t c = 1; c < n_classes; c++)
        if (logits[c] > logits[best])
            best = c;
    return best;
}

/* Turns logits into probabilities; returns the loss for a label. Weights that have diverged can
 * give an infinite loss, which is shown as infinite. */
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

static inline __attribute__((always_inline)) SoftmaxTally gradient_of(
    const float *weights, uint32_t n_classes, const RubatoImages *images, const uint64_t *rows,
    size_t n, float scale, float *gradient)
{
    const size_t n_pixels = (size_t)images->height * images->width;
    float errors[SOFTMAX_CLASSES_MAX];
    SoftmaxTally tally = { 0 };

    memset(gradient, 0, (n_pixels + 1) * n_classes * sizeof *gradient);
    for (size_t k = 0; k < n; k++) {
        const uint8_t *pixels = images->pixels + rows[k] * n_pixels;
        const uint8_t label = images->labels[rows[k]];

        logits_of(weights, n_classes, pixels, n_pixels, errors);
        tally.n_right += likeliest(errors, n_classes) == label;
        tally.loss += softmax(errors, n_classes, label);
        errors[label] -= 1;
        for (uint32_t c = 0; c < n_classes; c++)
            errors[c] *= scale;
        for (size_t i = 0; i < n_pixels; i++)
            if (pixels[i] != 0)
                add_scaled(gradient + i * n_classes, (float)pixels[i] * (1.0f / 255), errors,
                           n_classes);
        add_scaled(gradient + n_pixels * n_classes, 1, errors, n_classes);
    }
    return tally;
}

size_t softmax_n_inputs(const RubatoImages *images)
{
    return (size_t)images->height * images->width + 1;
}

SoftmaxTally softmax_gradient(const float *weights, uint32_t n_classes, const RubatoImages *images,
                              const uint64_t *rows, size_t n, float scale, float *gradient)
{
    if (n_classes == CLASSES_USUAL)
        return gradient_of(weights, CLASSES_USUAL, images, rows, n, scale, gradient);
    return gradient_of(weights, n_classes, images, rows, n, scale, gradient);
}

static void logits_of_image(const float *weights, uint32_t n_classes, const RubatoImages *images,
                            size_t image, float *logits)
{
    const size_t n_pixels = (size_t)images->height * images->width;
    const uint8_t *pixels = images->pixels + image * n_pixels;

    if (n_classes == CLASSES_USUAL)
        logits_of(weights, CLASSES_USUAL, pixels, n_pixels, logits);
    else
        logits_of(weights, n_classes, pixels, n_pixels, logits);
}

uint32_t softmax_classify(const float *weights, uint32_t n_classes, const RubatoImages *images,
                          size_t image)
{
    float logits[SOFTMAX_CLASSES_MAX];

    logits_of_image(weights, n_classes, images, image, logits);
    return likeliest(logits, n_classes);
}

SoftmaxTally softmax_evaluate(const float *weights, uint32_t n_classes, const RubatoImages *images)
{
    float logits[SOFTMAX_CLASSES_MAX];
    SoftmaxTally tally = { 0 };

    for (size_t k = 0; k < images->n_images; k++) {
        logits_of_image(weights, n_classes, images, k, logits);
        tally.n_right += likeliest(logits, n_classes) == images->labels[k];
        tally.loss += softmax(logits, n_classes, images->labels[k]);
    }
    return tally;
}
