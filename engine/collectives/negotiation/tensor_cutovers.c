/* Cut-overs of allreduce, and their tuner: see tensor_cutovers.h. */
#include "engine/collectives/negotiation/tensor_cutovers.h"

#include <glib.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_CLASS_BYTES = 4 << 10,
    WAY_BITS = 4,
    MOST_NODES = 16, /* whose values a node keeps all, while it only tries */
};

/* Another way has to be faster by this part. Less is noise, and would change from run to run. */
enum { CLEARLY = 20 };

static const char *const names[TENSOR_WAYS] = {
    [TENSOR_WAY_SHARES] = "reduce-scatter",
    [TENSOR_WAY_DIRECT] = "direct",
    [TENSOR_WAY_DOUBLING] = "doubling",
    [TENSOR_WAY_HALVING] = "halving",
    [TENSOR_WAY_RING] = "ring",
};

const char *tensor_way_name(TensorWay way)
{
    return names[way];
}

bool tensor_way_find(const char *name, TensorWay *way)
{
    for (uint32_t i = 0; i < TENSOR_WAYS; i++)
        if (strcmp(names[i], name) == 0) {
            *way = (TensorWay)i;
            return true;
        }
    return false;
}

uint32_t tensor_ways_of(uint32_t n_nodes)
{
    uint32_t ways = 1u << TENSOR_WAY_SHARES;

    if (n_nodes <= MOST_NODES)
        ways |= 1u << TENSOR_WAY_DIRECT;
    if (n_nodes > 2 && n_nodes <= MOST_NODES) /* between two nodes it is the direct way, */
        ways |= 1u << TENSOR_WAY_DOUBLING;
    if (n_nodes > 2) /* and these are that by shares */
        ways |= 1u << TENSOR_WAY_HALVING | 1u << TENSOR_WAY_RING;
    return ways;
}

/* ---- cut-overs ---- */

uint32_t tensor_class_of(uint64_t n_bytes)
{
    uint32_t size_class = 0;

    while (size_class < TENSOR_MEASURED_CLASSES && tensor_class_bytes(size_class) < n_bytes)
        size_class++;
    return size_class;
}

uint64_t tensor_class_bytes(uint32_t size_class)
{
    return (uint64_t)LEAST_CLASS_BYTES << size_class;
}

TensorWay tensor_cutovers_way(TensorCutovers cutovers, uint32_t size_class)
{
    return (TensorWay)(cutovers >> size_class * WAY_BITS & ((1u << WAY_BITS) - 1));
}

void tensor_cutovers_set(TensorCutovers *cutovers, uint32_t size_class, TensorWay way)
{
    *cutovers ^= (uint64_t)(tensor_cutovers_way(*cutovers, size_class) ^ way)
                 << size_class * WAY_BITS;
}

TensorCutovers tensor_cutovers_up_to(uint64_t n_bytes)
{
    TensorCutovers cutovers = 0;

    for (uint32_t i = 0; i < TENSOR_MEASURED_CLASSES; i++)
        tensor_cutovers_set(
            &cutovers, i, tensor_class_bytes(i) <= n_bytes ? TENSOR_WAY_DIRECT : TENSOR_WAY_SHARES);
    return cutovers;
}

TensorCutovers tensor_cutovers_all(TensorWay way)
{
    TensorCutovers cutovers = 0;

    for (uint32_t i = 0; i < TENSOR_CLASSES; i++)
        tensor_cutovers_set(&cutovers, i, way);
    return cutovers;
}

bool tensor_cutovers_are_valid(TensorCutovers cutovers)
{
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++)
        if (tensor_cutovers_way(cutovers, i) >= TENSOR_WAYS)
            return false;
    return cutovers >> TENSOR_CLASSES * WAY_BITS == 0;
}

/* ---- the tuner ---- */

void tensor_tuner_init(TensorTuner *tuner, TensorCutovers cutovers, uint32_t ways)
{
    *tuner = (TensorTuner){ .cutovers = cutovers, .ways = ways };
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++)
        tuner->trials[i].first = tensor_cutovers_way(cutovers, i);
    for (uint32_t i = TENSOR_MEASURED_CLASSES; i < TENSOR_CLASSES; i++)
        tuner->trials[i].is_settled = true;
}

void tensor_tuner_pin(TensorTuner *tuner, uint32_t size_class, TensorWay way)
{
    tensor_cutovers_set(&tuner->cutovers, size_class, way);
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

/* The way behind that one, of those that are tried. */
static TensorWay next_way(const TensorTuner *tuner, TensorWay way)
{
    do
        way = (TensorWay)((way + 1) % TENSOR_WAYS);
    while ((tuner->ways >> way & 1) == 0);
    return way;
}

static void settle(TensorTuner *tuner, uint32_t size_class)
{
    TensorTrial *const trial = &tuner->trials[size_class];
    TensorWay best = trial->first;

    for (uint32_t way = 0; way < TENSOR_WAYS; way++)
        if (trial->n_samples[way] > 0)
            trial->medians[way] = median_of(trial->samples[way], trial->n_samples[way]);
    for (uint32_t way = 0; way < TENSOR_WAYS; way++)
        if (trial->n_samples[way] > 0 && trial->medians[way] < trial->medians[best])
            best = (TensorWay)way;
    const bool changes =
        trial->medians[best] + trial->medians[best] / CLEARLY < trial->medians[trial->first];
    tensor_cutovers_set(&tuner->cutovers, size_class, changes ? best : trial->first);
    trial->is_settled = true;
}

TensorTunerNews tensor_tuner_note(TensorTuner *tuner, uint32_t size_class, TensorWay way,
                                  uint64_t ns)
{
    TensorTrial *const trial = &tuner->trials[size_class];
    const TensorWay next = next_way(tuner, way);

    /* what was under way at a change counts for nothing, nor do the first ones behind it */
    if (trial->is_settled || next == way ||
        way != tensor_cutovers_way(tuner->cutovers, size_class) ||
        trial->n_skipped++ < TENSOR_TURN_SKIPPED)
        return TENSOR_TUNER_NOTHING;
    trial->samples[way][trial->n_samples[way]++] = ns;
    if (++trial->n_in_turn < TENSOR_TURN_SAMPLES)
        return TENSOR_TUNER_NOTHING;
    trial->n_in_turn = trial->n_skipped = 0;
    if (++trial->turn == TENSOR_WAY_TURNS * (uint32_t)__builtin_popcount(tuner->ways)) {
        settle(tuner, size_class);
        return TENSOR_TUNER_SETTLES;
    }
    tensor_cutovers_set(&tuner->cutovers, size_class, next);
    return TENSOR_TUNER_TRIES;
}
