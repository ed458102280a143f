/* Allreduce by each way, between simulated nodes: all give the same, and those that keep the order
 * of the nodes the same bits. One thread. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "tests/support/collectives/flow_world.h"
#include "tests/support/runner.h"

static const RubatoDtype reduced[] = { RUBATO_F32, RUBATO_F64, RUBATO_F16, RUBATO_BF16,
                                       RUBATO_I8,  RUBATO_I64, RUBATO_BOOL };

/* Values whose sums depend on the order, and the same numbers as integers. */
static void put_uneven(RubatoDtype dtype, void *values, uint64_t n, uint32_t rank)
{
    for (uint64_t i = 0; i < n; i++) {
        const double value = sin((double)(i * 13 + rank * 7 + 1)) * 3;

        if (dtype == RUBATO_F64)
            ((double *)values)[i] = value;
        else if (dtype == RUBATO_F32)
            ((float *)values)[i] = (float)value;
        else if (dtype == RUBATO_BF16)
            ((uint16_t *)values)[i] = tensor_bf16_from_float((float)value);
        else
            flow_world_put(dtype, values, i,
                           dtype == RUBATO_F16 ? (int64_t)value : flow_world_value(rank, i));
    }
}

/* An allreduce of as many nodes by a way, in an order of messages that depends on the seed. Rank
 * 0's result, which all have. (transfer full) */
static uint8_t *reduce_by(TensorWay way, const TensorRequest *request, uint32_t n_nodes,
                          uint64_t seed)
{
    FlowWorld *const world = flow_world_begin(seed);
    const uint64_t n = tensor_request_values(request);
    const size_t n_bytes = n * rubato_dtype_size(request->dtype);

    for (uint32_t node = 0; node < n_nodes; node++)
        flow_world_add_node(world, 1 + node % 2);
    for (uint32_t rank = 0; rank < world->n_ranks; rank++) {
        flow_world_make_part(world, rank, request, /* in_place= */ seed % 2 == 0);
        put_uneven(request->dtype, (void *)(uintptr_t)world->parts[rank].input, n, rank);
    }
    flow_world_make_flows(world, way);
    flow_world_run(world, seed);
    uint8_t *const result = g_memdup2(world->parts[0].output, n_bytes);
    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        ck_assert_mem_eq(world->parts[rank].output, result, n_bytes);
    for (uint32_t node = 0; node < n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    flow_world_free(world);
    return result;
}

/* Floats of another order are near; all else is the same. */
static void compare(RubatoDtype dtype, const uint8_t *one, const uint8_t *other, uint64_t n)
{
    const size_t size = rubato_dtype_size(dtype);

    if (dtype != RUBATO_F32 && dtype != RUBATO_F64 && dtype != RUBATO_BF16)
        ck_assert_mem_eq(one, other, n * size);
    for (uint64_t i = 0; i < n && dtype == RUBATO_F64; i++)
        ck_assert_double_eq_tol(((const double *)(const void *)one)[i],
                                ((const double *)(const void *)other)[i], 1e-12);
    for (uint64_t i = 0; i < n && dtype == RUBATO_F32; i++)
        ck_assert_float_eq_tol(((const float *)(const void *)one)[i],
                               ((const float *)(const void *)other)[i], 1e-4f);
}

/* Of each way, dtype and number of nodes; products of many floats are not compared. */
START_TEST(ways_give_the_same_and_those_in_order_the_same_bits)
{
    static const RubatoReduction reductions[] = { RUBATO_REDUCTION_SUM, RUBATO_REDUCTION_MEAN,
                                                  RUBATO_REDUCTION_MIN, RUBATO_REDUCTION_MAX };
    enum { N_LARGE = 1 }; /* of some pieces for each node; they take long */
    const RubatoDtype dtype = reduced[_i];

    for (uint32_t n_nodes = 2; n_nodes <= FLOW_WORLD_NODES; n_nodes++)
        for (size_t i = 0; i < G_N_ELEMENTS(reductions) + N_LARGE; i++) {
            const RubatoReduction reduction = reductions[i % G_N_ELEMENTS(reductions)];
            const TensorRequest request = {
                .operation = TENSOR_ALLREDUCE,
                .dtype = dtype,
                .n_dims = 2,
                .shape = { i < G_N_ELEMENTS(reductions) ? 1 + 40 * i : 9000, 3 },
                .reduce = { .reduction = reduction,
                            .prescale = dtype <= RUBATO_F64 ? 2 : 1,
                            .postscale = 1 },
            };
            const uint64_t n = tensor_request_values(&request);
            const size_t n_bytes = n * rubato_dtype_size(dtype);

            if (dtype == RUBATO_BOOL && reduction == RUBATO_REDUCTION_MEAN)
                continue;
            g_autofree uint8_t *expected = reduce_by(TENSOR_WAY_SHARES, &request, n_nodes, i);
            for (TensorWay way = TENSOR_WAY_DIRECT; way < TENSOR_WAYS; way++) {
                g_autofree uint8_t *result = reduce_by(way, &request, n_nodes, i);
                g_autofree uint8_t *again = reduce_by(way, &request, n_nodes, i + 5);

                ck_assert_mem_eq(again, result, n_bytes);
                if ((TENSOR_WAYS_IN_ORDER >> way & 1) != 0)
                    ck_assert_mem_eq(result, expected, n_bytes);
                else
                    compare(dtype, result, expected, n);
            }
        }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor ways");
    TCase *const cases = tcase_create("cases");

    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, ways_give_the_same_and_those_in_order_the_same_bits, 0,
                        G_N_ELEMENTS(reduced));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
