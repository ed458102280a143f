/* Orders rows by a keyed permutation: a balanced Feistel network over the next even number of bits,
 * applied again while the result is outside (J. Black, P. Rogaway: Ciphers with arbitrary finite
 * domains, 2002; four rounds, as M. Luby and C. Rackoff ask for). Pure functions. */
#include "apps/softmax/softmax_batches.h"

#include <assert.h>
#include <rubato/mix.h>

#define N_ROUNDS 4u

/* A step of SplitMix64. */
static uint64_t mix(uint64_t z)
{
    return rubato_mix64(z + UINT64_C(0x9e3779b97f4a7c15));
}

void softmax_batches_init(SoftmaxBatches *batches, uint64_t n_rows, uint64_t batch_size,
                          uint32_t rank, uint32_t n_workers, uint64_t seed)
{
    assert(n_rows > 0 && batch_size > 0 && rank < n_workers);
    *batches = (SoftmaxBatches){
        .n_rows = n_rows,
        .batch_size = batch_size < n_rows ? batch_size : n_rows,
        .rank = rank,
        .n_workers = n_workers,
        .seed = seed,
        .half_bits = 1,
    };
    while (batches->half_bits < 32 && n_rows > UINT64_C(1) << (2 * batches->half_bits))
        batches->half_bits++;
}

uint64_t softmax_batches_per_epoch(const SoftmaxBatches *batches)
{
    return (batches->n_rows - 1) / batches->batch_size + 1;
}

size_t softmax_batches_max(const SoftmaxBatches *batches)
{
    return (size_t)(batches->batch_size / batches->n_workers) + 1;
}

uint64_t softmax_batches_row(const SoftmaxBatches *batches, uint64_t epoch, uint64_t place)
{
    const uint64_t key = mix(batches->seed ^ mix(epoch));
    const uint64_t mask = (UINT64_C(1) << batches->half_bits) - 1;
    uint64_t row = place;

    assert(place < batches->n_rows);
    do {
        uint64_t left = row >> batches->half_bits, right = row & mask;

        for (unsigned round = 0; round < N_ROUNDS; round++) {
            const uint64_t next = left ^ (mix(key + (right << 2 | round)) & mask);

            left = right;
            right = next;
        }
        row = left << batches->half_bits | right;
    } while (row >= batches->n_rows);
    return row;
}

size_t softmax_batches_take(const SoftmaxBatches *batches, uint64_t step, uint64_t *rows,
                            uint64_t *n_step)
{
    const uint64_t per_epoch = softmax_batches_per_epoch(batches);
    const uint64_t epoch = step / per_epoch;
    const uint64_t begin = step % per_epoch * batches->batch_size;
    const uint64_t left = batches->n_rows - begin;
    const uint64_t n = left < batches->batch_size ? left : batches->batch_size;
    const uint64_t share = n / batches->n_workers, rest = n % batches->n_workers;

    /* The first `rest` workers take one row more than the others. */
    const uint64_t from = share * batches->rank + (batches->rank < rest ? batches->rank : rest);
    const uint64_t n_own = share + (batches->rank < rest);

    for (uint64_t i = 0; i < n_own; i++)
        rows[i] = softmax_batches_row(batches, epoch, begin + from + i);
    *n_step = n;
    return (size_t)n_own;
}
