#include "tests/support/engine/conformance_plan.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

RubatoKey plan_key(const Plan *plan, uint32_t number)
{
    uint64_t state = number;

    if (strcmp(plan->spec.storage, "dense") == 0)
        return FIRST_KEY + number;
    if (number < FIRST_OF_RUN)
        return number == 0 ? 0 : UINT64_MAX;
    return number < END_OF_RUN ? 500 + number : next_random(&state);
}

static void plan_chunks(Step *step, uint64_t *random)
{
    const bool in_a_row = random_below(random, 2) == 0;
    const uint32_t first = random_below(random, N_CHUNKS);

    step->is_chunks = true;
    step->n_chunks = random_below(random, in_a_row ? N_CHUNKS - first + 1 : N_CHUNKS);
    for (uint32_t i = 0; i < step->n_chunks; i++) {
        step->chunks[i] = in_a_row ? first + i : random_below(random, N_CHUNKS);
        for (uint64_t k = step->chunks[i] * CHUNK_SIZE;
             k < (step->chunks[i] + 1) * CHUNK_SIZE && k < N_KEYS; k++)
            step->numbers[step->n++] = (uint32_t)k;
    }
}

static void plan_run(Step *step, uint64_t *random)
{
    const uint32_t first = FIRST_OF_RUN + random_below(random, END_OF_RUN - FIRST_OF_RUN);

    step->is_run = true;
    step->n = random_below(random, END_OF_RUN - first + 1);
    for (uint32_t i = 0; i < step->n; i++)
        step->numbers[i] = first + i;
}

static void plan_list(Step *step, uint64_t *random)
{
    step->n = random_below(random, MAX_STEP_KEYS);
    for (uint32_t i = 0; i < step->n; i++)
        step->numbers[i] = i > 0 && random_below(random, 4) == 0
                               ? step->numbers[random_below(random, i)]
                               : random_below(random, N_KEYS);
}

void plan_make(Plan *plan, uint64_t seed)
{
    uint64_t random = seed;

    memset(plan->steps, 0, sizeof plan->steps);
    memset(plan->times, 0, sizeof plan->times);
    for (uint32_t w = 0; w < N_WORKERS; w++)
        for (uint32_t t = 0; t < N_ITERATIONS; t++) {
            Step *step = &plan->steps[w][t];

            if (plan->handle == HANDLE_CHUNK && t % 2 == 0)
                plan_chunks(step, &random);
            else if (random_below(&random, 3) == 0)
                plan_run(step, &random);
            else
                plan_list(step, &random);
            for (uint32_t i = 0; i < step->n; i++) {
                step->keys[i] = plan_key(plan, step->numbers[i]);
                plan->times[w][t][step->numbers[i]]++;
            }
        }
}

uint64_t plan_added_before(const Plan *plan, uint32_t worker, uint64_t end, uint32_t number)
{
    uint64_t n = 0;

    for (uint64_t t = 0; t < end && t < N_ITERATIONS; t++)
        n += plan->times[worker][t][number];
    return n;
}

uint32_t plan_row_length(const Plan *plan, uint32_t number)
{
    return 1 + number % plan->spec.width;
}

void plan_pack(const Plan *plan, const Step *step, char *packed, const char *even)
{
    const size_t value_bytes = rubato_dtype_size(plan->spec.dtype);

    for (uint32_t i = 0; i < step->n; i++) {
        const size_t n_bytes = plan_row_length(plan, step->numbers[i]) * value_bytes;

        memcpy(packed, even + i * plan->spec.width * value_bytes, n_bytes);
        packed += n_bytes;
    }
}

void plan_unpack(const Plan *plan, const Step *step, const char *packed, char *even)
{
    const size_t value_bytes = rubato_dtype_size(plan->spec.dtype);
    const uint32_t width = plan->spec.width;

    for (uint32_t i = 0; i < step->n; i++) {
        const uint32_t n = plan_row_length(plan, step->numbers[i]);

        memcpy(even + i * width * value_bytes, packed, n * value_bytes);
        for (uint32_t j = n; j < width; j++)
            value_store(plan->spec.dtype, even, i * width + j,
                        (j + 1) * value_load(plan->spec.dtype, even, i * width));
        packed += n * value_bytes;
    }
}
