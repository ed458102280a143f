/* Cut-overs of allreduce, and their tuner: see tensor_cutovers.h. */
#include "engine/collectives/negotiation/tensor_cutovers.h"

#include <glib.h>
#include <stdlib.h>

enum { LEAST_CLASS_BYTES = 4 << 10 };

/* The other way has to be faster by this part. Less is noise, and would change from run to run. */
enum { CLEARLY = 20 };

uint32_t tensor_class_of(uint64_t n_bytes)
{
    uint32_t size_class = 0;

    while (size_class < TENSOR_CLASSES && tensor_class_bytes(size_class) < n_bytes)
        size_class++;
    return size_class;
}

uint64_t tensor_class_bytes(uint32_t size_class)
{
    return (uint64_t)LEAST_CLASS_BYTES << size_class;
}

uint32_t tensor_cutovers_up_to(uint64_t n_bytes)
{
    uint32_t direct = 0;

    for (uint32_t i = 0; i < TENSOR_CLASSES; i++)
        direct |= tensor_class_bytes(i) <= n_bytes ? UINT32_C(1) << i : 0;
    return direct;
}

static bool is_direct(const TensorTuner *tuner, uint32_t size_class)
{
    return (tuner->direct >> size_class & 1) != 0;
}

static void set_direct(TensorTuner *tuner, uint32_t size_class, bool directly)
{
    const uint32_t bit = UINT32_C(1) << size_class;

    tuner->direct = directly ? tuner->direct | bit : tuner->direct & ~bit;
}

void tensor_tuner_init(TensorTuner *tuner, uint32_t direct)
{
    *tuner = (TensorTuner){ .direct = direct };
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++)
        tuner->trials[i].began_directly = is_direct(tuner, i);
}

void tensor_tuner_pin(TensorTuner *tuner, uint32_t size_class, bool directly)
{
    set_direct(tuner, size_class, directly);
    tuner->trials[size_class].is_settled = true;
}

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

static uint64_t median_of(uint64_t *samples, uint32_t n)
{
    qsort(samples, n, sizeof *samples, compare);
    return samples[n / 2];
}

static void settle(TensorTuner *tuner, uint32_t size_class)
{
    TensorTrial *const trial = &tuner->trials[size_class];
    const bool first = trial->began_directly;

    for (uint32_t way = 0; way < TENSOR_WAYS; way++)
        trial->medians[way] = median_of(trial->samples[way], trial->n_samples[way]);
    const bool changes =
        trial->medians[!first] + trial->medians[!first] / CLEARLY < trial->medians[first];
    set_direct(tuner, size_class, changes ? !first : first);
    trial->is_settled = true;
}

TensorTunerNews tensor_tuner_note(TensorTuner *tuner, uint32_t size_class, bool directly,
                                  uint64_t ns)
{
    TensorTrial *const trial = &tuner->trials[size_class];

    /* what was under way at a change counts for nothing, nor do the first ones behind it */
    if (trial->is_settled || directly != is_direct(tuner, size_class) ||
        trial->n_skipped++ < TENSOR_TURN_SKIPPED)
        return TENSOR_TUNER_NOTHING;
    trial->samples[directly][trial->n_samples[directly]++] = ns;
    if (++trial->n_in_turn < TENSOR_TURN_SAMPLES)
        return TENSOR_TUNER_NOTHING;
    trial->n_in_turn = trial->n_skipped = 0;
    if (++trial->turn == TENSOR_TURNS) {
        settle(tuner, size_class);
        return TENSOR_TUNER_SETTLES;
    }
    set_direct(tuner, size_class, !directly);
    return TENSOR_TUNER_TRIES;
}
