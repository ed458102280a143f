/* The rounds of doubling, halving and ring: nodes agree on them, and in the end all have all
 * values, once. */
#include "engine/collectives/flow/tensor_schedule.h"

#include <check.h>
#include <glib.h>
#include <string.h>

#include "tests/support/runner.h"

enum { MOST_NODES = 33 };

static const TensorWay ways[] = { TENSOR_WAY_DOUBLING, TENSOR_WAY_HALVING, TENSOR_WAY_RING };

/* What a node has of a block: how often the values of each node are in it. */
static uint8_t has[MOST_NODES][MOST_NODES][MOST_NODES];

static TensorRound round_of(TensorWay way, uint32_t n_nodes, uint32_t self, uint32_t round)
{
    return tensor_schedule_round(&(TensorSchedule){ way, n_nodes, self }, round);
}

static void check_pair(TensorWay way, uint32_t n_nodes, uint32_t self, uint32_t round)
{
    const TensorRound one = round_of(way, n_nodes, self, round);
    const TensorRound other = round_of(way, n_nodes, one.to, round);

    ck_assert_uint_lt(one.to, n_nodes);
    ck_assert_uint_ne(one.to, self);
    ck_assert_uint_eq(other.from, self);
    ck_assert_uint_eq(other.got, one.sent);
    ck_assert_uint_eq(other.n, one.n);
    ck_assert_uint_gt(one.n, 0);
    ck_assert_uint_le(one.n, tensor_schedule_most(&(TensorSchedule){ way, n_nodes, self }));
}

/* All nodes do the round: what is combined is added, else it is replaced. */
static void play_round(TensorWay way, uint32_t n_nodes, uint32_t round, bool combines)
{
    g_autofree void *before = g_memdup2(has, sizeof has);
    const uint8_t(*const had)[MOST_NODES][MOST_NODES] = before;

    for (uint32_t node = 0; node < n_nodes; node++) {
        const TensorRound one = round_of(way, n_nodes, node, round);

        check_pair(way, n_nodes, node, round);
        for (uint32_t i = 0; i < one.n; i++) {
            const uint32_t block = (one.got + i) % n_nodes;

            for (uint32_t k = 0; k < n_nodes; k++)
                has[node][block][k] =
                    (uint8_t)(had[one.from][block][k] + (combines ? had[node][block][k] : 0));
        }
    }
}

START_TEST(all_nodes_get_the_values_of_all_once)
{
    const TensorWay way = ways[_i];

    for (uint32_t n_nodes = 2; n_nodes <= MOST_NODES; n_nodes++) {
        const TensorSchedule schedule = { way, n_nodes, 0 };
        const uint32_t n_combining = tensor_schedule_combining(&schedule);

        memset(has, 0, sizeof has);
        for (uint32_t node = 0; node < n_nodes; node++)
            for (uint32_t block = 0; block < n_nodes; block++)
                has[node][block][node] = way != TENSOR_WAY_DOUBLING || node == block;
        for (uint32_t round = 0; round < tensor_schedule_rounds(&schedule); round++)
            play_round(way, n_nodes, round, round < n_combining);
        for (uint32_t node = 0; node < n_nodes; node++)
            for (uint32_t block = 0; block < n_nodes; block++)
                for (uint32_t k = 0; k < n_nodes; k++)
                    ck_assert_uint_eq(has[node][block][k],
                                      way != TENSOR_WAY_DOUBLING || k == block);
    }
}
END_TEST

/* The numbers of rounds and blocks for which they are known. */
START_TEST(they_take_as_many_rounds_and_blocks_as_they_promise)
{
    static const struct {
        uint32_t n_nodes;
        uint32_t n_rounds[3], n_blocks[3];
    } cases[] = { { 2, { 1, 2, 2 }, { 1, 2, 2 } },      { 3, { 2, 4, 4 }, { 2, 4, 4 } },
                  { 4, { 2, 4, 6 }, { 3, 6, 6 } },      { 5, { 3, 6, 8 }, { 4, 8, 8 } },
                  { 7, { 3, 6, 12 }, { 6, 12, 12 } },   { 8, { 3, 6, 14 }, { 7, 14, 14 } },
                  { 33, { 6, 12, 64 }, { 32, 64, 64 } } };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const TensorSchedule schedule = { ways[_i], cases[i].n_nodes, 0 };
        const uint32_t n_rounds = tensor_schedule_rounds(&schedule);
        uint32_t n_blocks = 0;

        for (uint32_t round = 0; round < n_rounds; round++)
            n_blocks += tensor_schedule_round(&schedule, round).n;
        ck_assert_uint_eq(n_rounds, cases[i].n_rounds[_i]);
        ck_assert_uint_eq(n_blocks, cases[i].n_blocks[_i]);
    }
}
END_TEST

/* The last step that reads what the round brings: it is sent on as a part of a sum or as it is, or
 * the result is combined of it. Results are read where they were copied to. */
static uint32_t last_read(const TensorSchedule *schedule, uint32_t round)
{
    const uint32_t n_combining = tensor_schedule_combining(schedule);
    const uint32_t n_rounds = tensor_schedule_rounds(schedule);
    const TensorRound one = tensor_schedule_round(schedule, round);
    const bool is_doubling = schedule->way == TENSOR_WAY_DOUBLING;
    uint32_t last = round + 1;

    if (is_doubling)
        return n_rounds;
    for (uint32_t later = round + 1; later < n_combining; later++) {
        const TensorRound next = tensor_schedule_round(schedule, later);

        for (uint32_t i = 0; i < next.n && round < n_combining; i++)
            if (tensor_schedule_has(schedule, one.got, one.n, (next.sent + i) % schedule->n_nodes))
                last = later;
    }
    if (round < n_combining && tensor_schedule_has(schedule, one.got, one.n, schedule->self))
        last = n_combining;
    return last;
}

START_TEST(what_is_got_stays_until_it_was_used)
{
    for (uint32_t n_nodes = 2; n_nodes <= MOST_NODES; n_nodes++)
        for (uint32_t self = 0; self < n_nodes; self++) {
            const TensorSchedule schedule = { ways[_i], n_nodes, self };

            for (uint32_t round = 0; round < tensor_schedule_rounds(&schedule); round++) {
                const uint32_t last_use = tensor_schedule_round(&schedule, round).last_use;

                ck_assert_uint_ge(last_use, last_read(&schedule, round));
                ck_assert_uint_le(last_use, tensor_schedule_rounds(&schedule));
            }
        }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor schedule");
    TCase *const cases = tcase_create("cases");
    const int n = G_N_ELEMENTS(ways);

    tcase_add_loop_test(cases, all_nodes_get_the_values_of_all_once, 0, n);
    tcase_add_loop_test(cases, they_take_as_many_rounds_and_blocks_as_they_promise, 0, n);
    tcase_add_loop_test(cases, what_is_got_stays_until_it_was_used, 0, n);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
