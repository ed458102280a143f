/* Rounds of allreduce: see tensor_schedule.h. */
#include "engine/collectives/flow/tensor_schedule.h"

#include <assert.h>

/* ⌈log₂ n⌉ */
static uint32_t log2_up(uint32_t n)
{
    uint32_t rounds = 0;

    while (UINT64_C(1) << rounds < n)
        rounds++;
    return rounds;
}

/* ⌈n / 2^times⌉: what is left of n blocks that are halved so often. */
static uint32_t halved(uint32_t n, uint32_t times)
{
    return (uint32_t)((n + (UINT64_C(1) << times) - 1) >> times);
}

uint32_t tensor_schedule_combining(const TensorSchedule *schedule)
{
    switch (schedule->way) {
    case TENSOR_WAY_HALVING:
        return log2_up(schedule->n_nodes);
    case TENSOR_WAY_RING:
        return schedule->n_nodes - 1;
    default:
        return 0;
    }
}

uint32_t tensor_schedule_rounds(const TensorSchedule *schedule)
{
    return schedule->way == TENSOR_WAY_DOUBLING ? log2_up(schedule->n_nodes)
                                                : 2 * tensor_schedule_combining(schedule);
}

/* The block or node so far behind that one, or before it. */
static uint32_t behind(const TensorSchedule *schedule, uint32_t one, uint32_t by)
{
    return (uint32_t)(((uint64_t)one + by) % schedule->n_nodes);
}

static uint32_t before(const TensorSchedule *schedule, uint32_t one, uint32_t by)
{
    return behind(schedule, one, schedule->n_nodes - by % schedule->n_nodes);
}

static TensorRound doubling(const TensorSchedule *it, uint32_t round)
{
    const uint32_t has = UINT32_C(1) << round, lacks = it->n_nodes - has;

    return (TensorRound){ .to = before(it, it->self, has),
                          .from = behind(it, it->self, has),
                          .sent = it->self,
                          .got = behind(it, it->self, has),
                          .n = has < lacks ? has : lacks,
                          .last_use = tensor_schedule_rounds(it) };
}

static TensorRound halving(const TensorSchedule *it, uint32_t round)
{
    const uint32_t n_combining = tensor_schedule_combining(it);
    const bool combines = round < n_combining;
    const uint32_t times = combines ? round : 2 * n_combining - 1 - round;
    const uint32_t keeps = halved(it->n_nodes, times + 1);
    const uint32_t n = halved(it->n_nodes, times) - keeps;
    const uint32_t far = behind(it, it->self, keeps), back = before(it, it->self, keeps);

    return combines ? (TensorRound){ far, back, far, it->self, n, n_combining }
                    : (TensorRound){ back, far, it->self, far, n, round + 1 };
}

static TensorRound ring(const TensorSchedule *it, uint32_t round)
{
    /* In the rounds that spread a node sends first what it has combined last, which is its own. */
    const uint32_t sent =
        before(it, it->self, round < it->n_nodes - 1 ? round + 1 : round + 1 - it->n_nodes);

    return (TensorRound){ .to = behind(it, it->self, 1),
                          .from = before(it, it->self, 1),
                          .sent = sent,
                          .got = before(it, sent, 1),
                          .n = 1,
                          .last_use = round + 1 };
}

TensorRound tensor_schedule_round(const TensorSchedule *schedule, uint32_t round)
{
    switch (schedule->way) {
    case TENSOR_WAY_DOUBLING:
        return doubling(schedule, round);
    case TENSOR_WAY_HALVING:
        return halving(schedule, round);
    default:
        assert(schedule->way == TENSOR_WAY_RING);
        return ring(schedule, round);
    }
}

bool tensor_schedule_has(const TensorSchedule *schedule, uint32_t first, uint32_t n, uint32_t block)
{
    return before(schedule, block, first) < n;
}

uint32_t tensor_schedule_most(const TensorSchedule *schedule)
{
    const uint32_t n_rounds = tensor_schedule_rounds(schedule);
    uint32_t most = 1;

    for (uint32_t round = 0; round < n_rounds; round++) {
        const TensorRound one = tensor_schedule_round(schedule, round);

        most = one.n > most ? one.n : most;
    }
    return most;
}
