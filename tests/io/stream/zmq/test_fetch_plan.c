/* Which versions a reader of a stream over ZeroMQ asks for, and which messages are none. */
#include <check.h>
#include <string.h>

#include "io/stream/zmq/fetch_pace.h"
#include "io/stream/zmq/fetch_plan.h"
#include "tests/support/runner.h"

enum { MOST = 6 };

/* The seed of version n is 10 n, in the first stream. */
#define FULL(n)         \
    {                   \
        n, (n)*10, 0, 0 \
    }
#define NEXT(n)                       \
    {                                 \
        n, (n)*10, (n)-1, (n)*10 - 10 \
    }
#define OTHER(n)            \
    {                       \
        n, (n)*10 + 1, 0, 0 \
    }

static const struct {
    uint64_t own, own_seed;
    ListedVersion theirs[MOST];
    size_t n;
    FetchKind kind;
    size_t at[MOST], n_at;
} plans[] = {
    { 0, 0, { { 0 } }, 0, FETCH_NOTHING, { 0 }, 0 },
    { 3, 30, { { 0 } }, 0, FETCH_NOTHING, { 0 }, 0 },
    /* It comes late: the newest, and what this builds on. */
    { 0, 0, { FULL(1), NEXT(2), FULL(3), NEXT(4) }, 4, FETCH_ANEW, { 2, 3 }, 2 },
    { 0, 0, { FULL(1), NEXT(2), NEXT(3) }, 3, FETCH_ANEW, { 0, 1, 2 }, 3 },
    /* It goes on. */
    { 3, 30, { FULL(1), NEXT(2), NEXT(3) }, 3, FETCH_NOTHING, { 0 }, 0 },
    { 2, 20, { FULL(1), NEXT(2), NEXT(3), FULL(4) }, 4, FETCH_NEXT, { 2, 3 }, 2 },
    /* Its own one is gone there, and the next one is not. */
    { 2, 20, { NEXT(3), FULL(4) }, 2, FETCH_NEXT, { 0, 1 }, 2 },
    { 2, 20, { FULL(3), NEXT(4) }, 2, FETCH_NEXT, { 0, 1 }, 2 },
    /* Those that are next are gone. */
    { 2, 20, { FULL(4), NEXT(5) }, 2, FETCH_ANEW, { 0, 1 }, 2 },
    { 2, 20, { FULL(4), NEXT(5), FULL(6) }, 3, FETCH_ANEW, { 2 }, 1 },
    /* The next one builds on another one of its number. */
    { 2, 21, { NEXT(3), FULL(4) }, 2, FETCH_ANEW, { 1 }, 1 },
    /* Another stream is there. */
    { 2, 21, { FULL(1), NEXT(2), NEXT(3) }, 3, FETCH_OTHER, { 0, 1, 2 }, 3 },
    { 9, 90, { OTHER(1), OTHER(2) }, 2, FETCH_OTHER, { 1 }, 1 },
    /* What the newest one builds on is missing, or another one: the newest that is whole. */
    { 0, 0, { FULL(1), NEXT(2), NEXT(4) }, 3, FETCH_ANEW, { 0, 1 }, 2 },
    { 0, 0, { OTHER(1), NEXT(2) }, 2, FETCH_ANEW, { 0 }, 1 },
    { 0, 0, { NEXT(2), NEXT(3) }, 2, FETCH_NOTHING, { 0 }, 0 },
};

START_TEST(reader_asks_for_what_it_lacks)
{
    size_t at[MOST], n_at = MOST;
    const FetchKind kind =
        fetch_plan(plans[_i].own, plans[_i].own_seed, plans[_i].theirs, plans[_i].n, at, &n_at);

    ck_assert_int_eq(kind, plans[_i].kind);
    ck_assert_uint_eq(n_at, plans[_i].n_at);
    for (size_t i = 0; i < n_at; i++)
        ck_assert_uint_eq(at[i], plans[_i].at[i]);
}
END_TEST

/* Who is too slow for all of them begins with the newest that has all rows. */
START_TEST(slow_reader_leaves_versions_out)
{
    static const struct {
        ListedVersion theirs[MOST];
        size_t n, first;
    } lists[] = {
        { { NEXT(3), FULL(4), NEXT(5), FULL(6), NEXT(7) }, 5, 3 },
        { { FULL(3), NEXT(4), NEXT(5) }, 3, 0 },
        { { NEXT(3), NEXT(4), NEXT(5) }, 3, 0 },
        { { NEXT(3), NEXT(4), FULL(5) }, 3, 2 },
        { { { 0 } }, 0, 0 },
    };
    size_t at[MOST];

    for (size_t i = 0; i < lists[_i].n; i++)
        at[i] = i;
    const size_t n = fetch_plan_leave_out(lists[_i].theirs, at, lists[_i].n);
    ck_assert_uint_eq(n, lists[_i].n - lists[_i].first);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(at[i], lists[_i].first + i);
}
END_TEST

/* ---- how much is asked for ---- */

/* Of a link that brings so many bytes a second: soon no more is under way than comes in a second,
 * or the least that is asked for; and a fast one is asked for all that may be. */
START_TEST(what_is_under_way_fits_the_link)
{
    static const uint64_t rates[] = { 10000, 100000, 300000, 3000000, 1000000000 };
    const uint64_t rate = rates[_i];
    FetchPace pace;

    fetch_pace_init(&pace);
    for (int i = 0; i < 50; i++)
        fetch_pace_answered(&pace, (int64_t)((uint64_t)pace.n_bytes * pace.window * 1000 / rate));
    const uint64_t n_bytes = (uint64_t)pace.n_bytes * pace.window;
    ck_assert_uint_le(n_bytes, MAX(rate, 16384));
    ck_assert_uint_ge(n_bytes, MIN(rate / 20, (uint64_t)STREAM_MOST_BYTES * FETCH_MOST_WINDOW));
    fetch_pace_missed(&pace);
    ck_assert_uint_le((uint64_t)pace.n_bytes * pace.window, 16384);
}
END_TEST

START_TEST(long_way_is_no_slow_link)
{
    FetchPace pace;

    fetch_pace_init(&pace);
    for (int i = 0; i < 50; i++)
        fetch_pace_answered(&pace, 600);
    ck_assert_uint_eq((uint64_t)pace.n_bytes * pace.window,
                      (uint64_t)STREAM_MOST_BYTES * FETCH_MOST_WINDOW);
}
END_TEST

/* ---- messages ---- */

static RubatoByteWriter write_list(uint64_t first, uint64_t second, uint64_t base)
{
    RubatoByteWriter bytes = rubato_byte_writer_new(STREAM_MOST_ANSWER);

    stream_message_write(&bytes, &(StreamMessage){ .kind = STREAM_MESSAGE_LIST, .id = 7, .n = 2 });
    stream_message_write_version(&bytes, &(ListedVersion){ first, 1, 0, 0 });
    stream_message_write_version(&bytes, &(ListedVersion){ second, 2, base, 1 });
    return bytes;
}

START_TEST(list_is_read_as_it_was_written)
{
    g_auto(RubatoByteWriter) bytes = write_list(3, 4, 3);
    ListedVersion versions[2];
    StreamMessage message;

    ck_assert(stream_message_read(bytes.bytes, bytes.n, &message));
    ck_assert_uint_eq(message.id, 7);
    ck_assert(stream_message_read_versions(&message, versions));
    ck_assert_uint_eq(versions[0].number, 3);
    ck_assert(versions[1].number == 4 && versions[1].seed == 2 && versions[1].base == 3 &&
              versions[1].base_seed == 1);
}
END_TEST

START_TEST(lists_that_do_not_ascend_are_refused)
{
    static const uint64_t wrong[][3] = { { 4, 3, 0 }, { 3, 3, 0 }, { 0, 3, 0 }, { 3, 4, 4 } };
    g_auto(RubatoByteWriter) bytes = write_list(wrong[_i][0], wrong[_i][1], wrong[_i][2]);
    ListedVersion versions[2];
    StreamMessage message;

    ck_assert(stream_message_read(bytes.bytes, bytes.n, &message));
    ck_assert(!stream_message_read_versions(&message, versions));
}
END_TEST

/* Each of the first 56 bytes matters, and how many follow. */
START_TEST(messages_of_another_length_or_kind_are_none)
{
    g_auto(RubatoByteWriter) list = write_list(3, 4, 3);
    g_autofree unsigned char *more = g_malloc0(list.n + 1);
    StreamMessage message;

    memcpy(more, list.bytes, list.n);
    ck_assert(!stream_message_read(more, list.n + 1, &message));
    for (size_t n = 0; n < list.n; n++)
        ck_assert(!stream_message_read(more, n, &message));
    more[0] ^= 1;
    ck_assert(!stream_message_read(more, list.n, &message));
    more[0] ^= 1;
    more[4] = STREAM_MESSAGE_GONE + 1;
    ck_assert(!stream_message_read(more, list.n, &message));
    more[4] = STREAM_MESSAGE_NEWEST; /* nothing follows that */
    ck_assert(!stream_message_read(more, list.n, &message));
}
END_TEST

START_TEST(questions_for_too_much_are_none)
{
    static const struct {
        uint64_t offset;
        uint32_t n;
        bool ok;
    } cases[] = {
        { 0, 1, true },           { 0, STREAM_MOST_BYTES, true },
        { 0, 0, false },          { 0, STREAM_MOST_BYTES + 1, false },
        { UINT64_MAX, 1, false }, { (uint64_t)1 << 63, 1, false },
    };
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);
    StreamMessage message;

    stream_message_write(&bytes, &(StreamMessage){ .kind = STREAM_MESSAGE_ASK_BYTES,
                                                   .offset = cases[_i].offset,
                                                   .n = cases[_i].n });
    ck_assert_int_eq(stream_message_read(bytes.bytes, bytes.n, &message), cases[_i].ok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fetch_plan");
    TCase *cases = tcase_create("plans and messages");

    tcase_add_loop_test(cases, reader_asks_for_what_it_lacks, 0, G_N_ELEMENTS(plans));
    tcase_add_loop_test(cases, slow_reader_leaves_versions_out, 0, 5);
    tcase_add_loop_test(cases, what_is_under_way_fits_the_link, 0, 5);
    tcase_add_test(cases, long_way_is_no_slow_link);
    tcase_add_test(cases, list_is_read_as_it_was_written);
    tcase_add_loop_test(cases, lists_that_do_not_ascend_are_refused, 0, 4);
    tcase_add_test(cases, messages_of_another_length_or_kind_are_none);
    tcase_add_loop_test(cases, questions_for_too_much_are_none, 0, 6);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
