/* Clocks of sources and their minimum. */
#include <stdlib.h>

#include "models/progress.h"
#include "models/request_heap.h"
#include "tests/support/runner.h"

/* One assertion per step: each of check's costs a write to a pipe. */
static bool agrees_with_search(const RubatoProgress *progress, const uint64_t *clocks, uint32_t n)
{
    uint64_t lowest = RUBATO_CLOCK_RETIRED;
    const uint32_t slowest = progress_slowest(progress);
    bool agrees = true;

    for (uint32_t i = 0; i < n; i++) {
        agrees &= progress_clock(progress, i) == clocks[i];
        lowest = MIN(lowest, clocks[i]);
    }
    agrees &= progress_min(progress) == lowest;
    if (lowest == RUBATO_CLOCK_RETIRED)
        return agrees && slowest == UINT32_MAX;
    return agrees && slowest < n && clocks[slowest] == lowest;
}

START_TEST(min_is_that_of_the_slowest)
{
    RubatoProgress *progress = progress_new(3);
    uint64_t from = 99;

    ck_assert_uint_eq(progress_n_sources(progress), 3);
    ck_assert_uint_eq(progress_min(progress), 0);
    ck_assert(progress_advance(progress, 0, 2, &from));
    ck_assert_uint_eq(from, 0);
    ck_assert(progress_advance(progress, 1, 1, &from));
    ck_assert_uint_eq(progress_min(progress), 0);
    ck_assert_uint_eq(progress_slowest(progress), 2);
    ck_assert(progress_advance(progress, 2, 5, &from));
    ck_assert_uint_eq(progress_min(progress), 1);
    ck_assert(progress_advance(progress, 0, 3, &from));
    ck_assert_uint_eq(from, 2);
    progress_free(progress);
}
END_TEST

START_TEST(old_and_repeated_clocks_change_nothing)
{
    RubatoProgress *progress = progress_new(2);
    uint64_t from = 99;

    ck_assert(progress_advance(progress, 0, 4, &from));
    from = 99;
    ck_assert(!progress_advance(progress, 0, 4, &from));
    ck_assert(!progress_advance(progress, 0, 3, &from));
    ck_assert(!progress_advance(progress, 1, 0, &from));
    ck_assert_uint_eq(from, 99);
    ck_assert_uint_eq(progress_clock(progress, 0), 4);
    ck_assert_uint_eq(progress_min(progress), 0);
    progress_free(progress);
}
END_TEST

START_TEST(retired_sources_hold_nobody_back)
{
    RubatoProgress *progress = progress_new(2);
    uint64_t from;

    ck_assert(progress_advance(progress, 0, 7, &from));
    ck_assert(progress_advance(progress, 1, RUBATO_CLOCK_RETIRED, &from));
    ck_assert_uint_eq(progress_min(progress), 7);
    ck_assert(!progress_advance(progress, 1, 8, &from));
    ck_assert(!progress_advance(progress, 1, RUBATO_CLOCK_RETIRED, &from));
    ck_assert(progress_advance(progress, 0, RUBATO_CLOCK_RETIRED, &from));
    ck_assert_uint_eq(progress_min(progress), RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(progress_slowest(progress), UINT32_MAX);
    progress_free(progress);
}
END_TEST

START_TEST(no_source_at_all_is_a_min_clock_of_retired)
{
    RubatoProgress *progress = progress_new(0);

    ck_assert_uint_eq(progress_min(progress), RUBATO_CLOCK_RETIRED);
    progress_free(progress);
    progress_free(NULL);
}
END_TEST

/* Random clocks, small steps and huge ones, up to the end of the range. */
START_TEST(agrees_with_a_plain_search)
{
    const uint32_t n = 1 + (uint32_t)_i * 23;
    RubatoProgress *progress = progress_new(n);
    uint64_t *clocks = g_new0(uint64_t, n);
    GRand *rand = g_rand_new_with_seed((guint32)_i);

    for (int step = 0; step < 2000; step++) {
        const uint32_t source = (uint32_t)g_rand_int_range(rand, 0, (gint32)n);
        const int kind = g_rand_int_range(rand, 0, 1000);
        uint64_t clock = clocks[source] + (uint64_t)g_rand_int_range(rand, 0, 3);
        uint64_t from = 0;

        if (kind < 20)
            clock += (uint64_t)g_rand_int_range(rand, 0, 300);
        else if (kind < 22)
            clock += (UINT64_MAX - clock) / 2;
        else if (kind < 24)
            clock = RUBATO_CLOCK_RETIRED;
        if (clock < clocks[source])
            clock = clocks[source];

        const bool moved = progress_advance(progress, source, clock, &from);
        const bool right = moved == (clock > clocks[source]) && (!moved || from == clocks[source]);
        clocks[source] = clock;
        ck_assert_msg(right && agrees_with_search(progress, clocks, n), "after step %d", step);
    }
    g_rand_free(rand);
    g_free(clocks);
    progress_free(progress);
}
END_TEST

/* A source may be at any distance before the slowest, also where the ring begins anew. */
START_TEST(a_source_as_far_ahead_as_the_ring_is_long_is_told_from_the_slowest)
{
    static const uint64_t begins[] = { 0, 1, 63, 64, 1000 };
    const uint64_t begin = begins[_i];

    for (uint64_t lead = 60; lead <= 130; lead++) {
        RubatoProgress *progress = progress_new(2);
        uint64_t clocks[2] = { begin + lead, begin + 1 }, from;

        if (begin > 0) {
            progress_advance(progress, 0, begin, &from);
            progress_advance(progress, 1, begin, &from);
        }
        progress_advance(progress, 0, clocks[0], &from);
        progress_advance(progress, 1, clocks[1], &from);
        require_msg(agrees_with_search(progress, clocks, 2), "one is %u clocks ahead",
                    (unsigned)lead);
        clocks[1] = begin + lead;
        progress_advance(progress, 1, clocks[1], &from);
        require_msg(agrees_with_search(progress, clocks, 2), "both are %u clocks on",
                    (unsigned)lead);
        progress_free(progress);
    }
}
END_TEST

/* What sets a number holds for all of its clock. Whether Adds and handlers that write come in the
 * order of workers does not depend on which of both they are. */
START_TEST(heap_gives_clock_then_worker_then_arrival)
{
    static const RubatoRequestKind kinds[] = { RUBATO_REQUEST_TUNE, RUBATO_REQUEST_ADD,
                                               RUBATO_REQUEST_ADD, RUBATO_REQUEST_WRITE };
    RubatoRequest requests[500];
    RequestHeap heap = { 0 };
    GRand *rand = g_rand_new_with_seed((guint32)_i);
    const RubatoRequest *before = NULL;

    ck_assert_ptr_null(request_heap_first(&heap));
    ck_assert_ptr_null(request_heap_pop(&heap));
    for (size_t i = 0; i < G_N_ELEMENTS(requests); i++) {
        requests[i] = (RubatoRequest){
            .clock = (uint64_t)g_rand_int_range(rand, 0, 9),
            .kind = kinds[g_rand_int_range(rand, 0, G_N_ELEMENTS(kinds))],
            .worker = (uint32_t)g_rand_int_range(rand, 0, 4),
        };
        request_heap_push(&heap, &requests[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(requests); i++) {
        const RubatoRequest *first = request_heap_first(&heap);
        const RubatoRequest *request = request_heap_pop(&heap);

        ck_assert_ptr_eq(first, request);
        if (before != NULL)
            ck_assert_uint_ge(request->clock, before->clock);
        if (before != NULL && request->clock == before->clock) {
            const bool tunes = request->kind == RUBATO_REQUEST_TUNE;

            ck_assert(!tunes || before->kind == RUBATO_REQUEST_TUNE);
            if (tunes == (before->kind == RUBATO_REQUEST_TUNE)) {
                ck_assert_uint_ge(request->worker, before->worker);
                /* of one worker: as they came, which is as they lie in the array */
                ck_assert(request->worker > before->worker || request > before);
            }
        }
        before = request;
    }
    ck_assert_ptr_null(request_heap_pop(&heap));
    request_heap_clear(&heap);
    g_rand_free(rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("progress");

    tcase_add_test(tcase, min_is_that_of_the_slowest);
    tcase_add_test(tcase, old_and_repeated_clocks_change_nothing);
    tcase_add_test(tcase, retired_sources_hold_nobody_back);
    tcase_add_test(tcase, no_source_at_all_is_a_min_clock_of_retired);
    tcase_add_loop_test(tcase, agrees_with_a_plain_search, 0, 8);
    tcase_add_loop_test(tcase, a_source_as_far_ahead_as_the_ring_is_long_is_told_from_the_slowest,
                        0, 5);
    tcase_add_loop_test(tcase, heap_gives_clock_then_worker_then_arrival, 0, 32);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
