/* Which values of a tensor the chunks of its segments have. */
#include "engine/collectives/flow/tensor_segments.h"

#include <check.h>
#include <glib.h>

#include "tests/support/runner.h"

enum { CHUNK = 100, N_VALUES = 1000 };

static TensorSegments segments;

/* Three segments, of 384, 384 and 232 values: chunks 0 to 3, 4 to 7 and 8 to 10. */
static void set_up(void)
{
    tensor_segments_init(&segments, 3, CHUNK);
    tensor_segments_share(&segments, N_VALUES);
    tensor_segments_number(&segments);
}

static void tear_down(void)
{
    tensor_segments_clear(&segments);
}

START_TEST(each_value_is_in_one_chunk_of_one_segment)
{
    uint64_t end, last = 0;

    ck_assert_uint_eq(tensor_segments_chunks(&segments), 11);
    for (uint64_t chunk = 0; chunk < 11; chunk++) {
        ck_assert_uint_eq(tensor_chunk_begin(&segments, chunk, &end), last);
        ck_assert_uint_le(end, segments.ends[tensor_segment_of(&segments, chunk)]);
        last = end;
    }
    ck_assert_uint_eq(last, N_VALUES);
}
END_TEST

static const struct {
    uint64_t chunk, n_values;
    uint32_t n; /* 0: no number of chunks from there on has so many values */
} runs[] = {
    { 0, 0, 0 },   { 0, 99, 0 },  { 0, 100, 1 }, { 0, 101, 0 }, { 0, 300, 3 },        { 0, 384, 4 },
    { 0, 385, 0 }, { 0, 400, 0 }, { 2, 184, 2 }, { 3, 84, 1 },  { 3, 100, 0 },        { 3, 184, 0 },
    { 8, 232, 3 }, { 10, 32, 1 }, { 10, 33, 0 }, { 9, 132, 2 }, { 8, UINT64_MAX, 0 },
};

START_TEST(run_has_whole_chunks_of_one_segment)
{
    ck_assert_uint_eq(tensor_segments_run(&segments, runs[_i].chunk, runs[_i].n_values),
                      runs[_i].n);
}
END_TEST

/* However many of them are sent together, each chunk of the others is sent once, and to one. */
START_TEST(runs_that_are_sent_have_each_chunk_of_the_others_once)
{
    const uint32_t most_chunks = (uint32_t)_i + 1, self = 1;
    uint32_t n_sent[11] = { 0 };
    TensorChunks chunks;

    for (uint64_t n = 0; n < tensor_segments_sends(&segments, most_chunks); n++) {
        if (!tensor_segments_nth_send(&segments, self, n, most_chunks, &chunks))
            continue;
        ck_assert_uint_le(chunks.n, most_chunks);
        ck_assert_uint_eq(tensor_segment_of(&segments, chunks.first),
                          tensor_segment_of(&segments, chunks.first + chunks.n - 1));
        for (uint32_t i = 0; i < chunks.n; i++)
            n_sent[chunks.first + i]++;
    }
    for (uint64_t chunk = 0; chunk < 11; chunk++)
        ck_assert_uint_eq(n_sent[chunk], tensor_segment_of(&segments, chunk) != self);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_segments");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, each_value_is_in_one_chunk_of_one_segment);
    tcase_add_loop_test(cases, run_has_whole_chunks_of_one_segment, 0, G_N_ELEMENTS(runs));
    tcase_add_loop_test(cases, runs_that_are_sent_have_each_chunk_of_the_others_once, 0, 6);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
