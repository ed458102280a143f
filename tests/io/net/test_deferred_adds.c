/* Deferred Adds: whole, in the order of clocks and workers, up to the turn that is asked for. */
#include "io/net/deferred_adds.h"
#include "tests/support/runner.h"

enum { PARTS = 2, WORKERS = 3 };

static _Atomic uint64_t node_clock;

/* What was taken: clock, worker, the first key, and the sum of the deltas. */
typedef struct {
    size_t n;
    struct {
        uint64_t clock;
        uint32_t worker;
        RubatoKey key;
        int64_t sum;
    } taken[64];
} Taken;

static void note(void *user, RubatoRequest *request)
{
    Taken *taken = user;
    const RubatoKeys *keys = &request->keys;
    const int64_t *deltas = request->input;
    int64_t sum = 0;

    ck_assert_ptr_null(keys->at);
    for (size_t i = 0; i < keys->n; i++)
        sum += deltas[i];
    taken->taken[taken->n].clock = request->clock;
    taken->taken[taken->n].worker = request->worker;
    taken->taken[taken->n].key = keys->keys == NULL ? keys->first : keys->keys[0];
    taken->taken[taken->n++].sum = sum;
}

static void note_selection(void *user, RubatoRequest *request)
{
    Taken *taken = user;
    int64_t *const sum = &taken->taken[taken->n++].sum;

    ck_assert_ptr_nonnull(request->keys.at);
    for (size_t i = 0; i < request->keys.n; i++)
        *sum += ((const int64_t *)request->input)[request->keys.at[i]];
}

static void push(DeferredAdds *adds, uint32_t part, uint32_t worker, uint64_t clock, int64_t delta)
{
    const RubatoRequest request = {
        .worker = worker, .clock = clock, .keys = { .first = clock, .n = 1 }, .input = &delta
    };

    ck_assert(deferred_adds_push(adds, part, &request, sizeof delta));
}

static Taken take(DeferredAdds *adds, uint32_t part, uint64_t clock, uint32_t worker)
{
    Taken taken = { 0 };

    deferred_adds_take(adds, part, deferred_adds_turn_of(adds, clock, worker), note, &taken);
    return taken;
}

START_TEST(adds_come_in_the_order_of_clocks_and_workers)
{
    static const struct {
        uint64_t clock;
        uint32_t worker;
    } expected[] = { { 0, 0 }, { 0, 0 }, { 0, 2 }, { 1, 1 }, { 1, 2 }, { 7, 0 }, { 7, 1 } };
    DeferredAdds *adds = deferred_adds_new(PARTS, WORKERS, &node_clock);
    Taken taken;

    push(adds, 1, 2, 0, 1);
    push(adds, 1, 2, 1, 1);
    push(adds, 1, 1, 1, 1);
    push(adds, 1, 1, 7, 1);
    push(adds, 1, 0, 0, 1);
    push(adds, 1, 0, 0, 2);
    push(adds, 1, 0, 7, 1);
    push(adds, 1, 0, 8, 1);
    ck_assert_uint_eq(take(adds, 0, 8, 0).n, 0); /* another part */
    taken = take(adds, 1, 8, 0);
    ck_assert_uint_eq(taken.n, G_N_ELEMENTS(expected));
    for (size_t i = 0; i < taken.n; i++) {
        ck_assert_uint_eq(taken.taken[i].clock, expected[i].clock);
        ck_assert_uint_eq(taken.taken[i].worker, expected[i].worker);
    }
    ck_assert_int_eq(taken.taken[1].sum, 2);
    ck_assert_uint_eq(take(adds, 1, RUBATO_CLOCK_RETIRED, 0).n, 1);
    deferred_adds_free(adds);
}
END_TEST

/* Whatever the turns are cut into. */
START_TEST(a_turn_ends_before_the_next_worker)
{
    DeferredAdds *adds = deferred_adds_new(1, WORKERS, &node_clock);

    for (uint64_t clock = 0; clock < 4; clock++)
        for (uint32_t worker = 0; worker < WORKERS; worker++)
            push(adds, 0, worker, clock, 1);
    for (uint64_t turn = 0; turn < 4 * WORKERS;) {
        const uint64_t end = MIN(turn + (uint64_t)_i, 4 * WORKERS);
        const Taken taken = take(adds, 0, end / WORKERS, (uint32_t)(end % WORKERS));

        ck_assert_uint_eq(taken.n, end - turn);
        for (size_t i = 0; i < taken.n; i++, turn++) {
            ck_assert_uint_eq(taken.taken[i].clock, turn / WORKERS);
            ck_assert_uint_eq(taken.taken[i].worker, turn % WORKERS);
        }
        ck_assert_uint_eq(deferred_adds_turn(adds, 0), turn);
        ck_assert_uint_eq(take(adds, 0, end / WORKERS, (uint32_t)(end % WORKERS)).n, 0);
    }
    deferred_adds_free(adds);
}
END_TEST

START_TEST(a_worker_s_own_come_up_to_a_clock)
{
    DeferredAdds *adds = deferred_adds_new(1, WORKERS, &node_clock);
    Taken taken = { 0 };

    for (uint64_t clock = 0; clock < 3; clock++) {
        push(adds, 0, 0, clock, 1);
        push(adds, 0, 1, clock, 1);
    }
    deferred_adds_take_of(adds, 0, 1, 1, note, &taken);
    ck_assert_uint_eq(taken.n, 2);
    ck_assert_uint_eq(taken.taken[1].worker, 1);
    ck_assert_uint_eq(take(adds, 0, 3, 0).n, 4);
    deferred_adds_free(adds);
}
END_TEST

static bool has_last(const DeferredAdds *adds, uint32_t worker, uint64_t clock)
{
    return deferred_adds_last_keys(adds, worker, clock).n > 0;
}

/* The last Add of a clock is known until the next one, also after it was taken; and not that of
 * another clock or worker, nor one of a part among several. */
START_TEST(a_worker_finds_its_last_add)
{
    const RubatoKey firsts[] = { 0, 10 }, keys[] = { 7, 3, 15 };
    const int64_t deltas[] = { 1, 2, 3 };
    const RubatoRequest whole = {
        .worker = 1, .clock = 6, .keys = { .keys = keys, .n = 3 }, .input = deltas
    };
    DeferredAdds *const single = deferred_adds_new(1, WORKERS, &node_clock);
    DeferredAdds *const several = deferred_adds_new(2, WORKERS, &node_clock);

    ck_assert(!has_last(single, 1, 0));
    push(single, 0, 1, 5, 1);
    ck_assert(has_last(single, 1, 5));
    ck_assert(!has_last(single, 1, 4));
    ck_assert(!has_last(single, 0, 5));
    ck_assert_uint_eq(take(single, 0, 6, 0).n, 1);
    ck_assert(has_last(single, 1, 5));

    push(several, 0, 1, 5, 1);
    ck_assert(!has_last(several, 1, 5));
    ck_assert(deferred_adds_allow_whole(several, firsts));
    ck_assert(!has_last(several, 1, 5));
    ck_assert(deferred_adds_push_whole(several, &whole, sizeof *deltas));
    const RubatoKeys last = deferred_adds_last_keys(several, 1, 6);

    ck_assert_uint_eq(last.n, 3);
    ck_assert_mem_eq(last.keys, keys, sizeof keys);
    deferred_adds_free(single);
    deferred_adds_free(several);
}
END_TEST

/* Looks change nothing: worker by worker, and the same come when they are taken. */
START_TEST(adds_may_be_looked_at_before_they_are_taken)
{
    DeferredAdds *adds = deferred_adds_new(PARTS, WORKERS, &node_clock);
    Taken seen = { 0 }, all = { 0 };

    for (uint64_t clock = 0; clock < 3; clock++)
        for (uint32_t worker = 0; worker < WORKERS; worker++)
            push(adds, 1, worker, clock, 1);
    deferred_adds_look(adds, 0, 3, note, &seen);
    ck_assert_uint_eq(seen.n, 0);
    deferred_adds_look(adds, 1, 2, note, &seen);
    ck_assert_uint_eq(seen.n, 2 * WORKERS);
    for (size_t i = 0; i < seen.n; i++) {
        ck_assert_uint_eq(seen.taken[i].worker, i / 2);
        ck_assert_uint_eq(seen.taken[i].clock, i % 2);
    }
    ck_assert_uint_eq(take(adds, 1, 2, 0).n, 2 * WORKERS);
    deferred_adds_look(adds, 1, RUBATO_CLOCK_RETIRED, note, &all);
    ck_assert_uint_eq(all.n, WORKERS);
    ck_assert_uint_eq(take(adds, 1, RUBATO_CLOCK_RETIRED, 0).n, WORKERS);
    deferred_adds_free(adds);
}
END_TEST

/* Lists, selections and runs, of sizes that make blocks too small and too large for the next. */
START_TEST(keys_and_deltas_are_copied_whatever_their_form_and_size)
{
    static const size_t sizes[] = { 1, 100, 3, 5000, 2, 40000, 60, 1, 1, 7000 };
    DeferredAdds *adds = deferred_adds_new(1, 1, &node_clock);

    for (uint64_t clock = 0; clock < 3 * G_N_ELEMENTS(sizes); clock++) {
        const size_t n = sizes[clock % G_N_ELEMENTS(sizes)];
        g_autofree RubatoKey *keys = g_new(RubatoKey, 2 * n);
        g_autofree uint32_t *at = g_new(uint32_t, n);
        g_autofree int64_t *deltas = g_new0(int64_t, 2 * n);
        RubatoRequest request = { .clock = clock, .keys = { .first = 9, .n = n }, .input = deltas };
        int64_t sum = 0;
        Taken taken;

        for (size_t i = 0; i < 2 * n; i++) {
            keys[i] = 7 + i;
            deltas[i] = (int64_t)(i + clock);
        }
        for (size_t i = 0; i < n; i++) {
            at[i] = (uint32_t)(2 * i + 1);
            sum += deltas[clock % 3 == 2 ? at[i] : i];
        }
        request.keys.keys = clock % 3 == 0 ? NULL : keys;
        request.keys.at = clock % 3 == 2 ? at : NULL;
        ck_assert(deferred_adds_push(adds, 0, &request, sizeof *deltas));
        memset(keys, 0, 2 * n * sizeof *keys);
        memset(deltas, 0, 2 * n * sizeof *deltas);
        taken = take(adds, 0, clock + 1, 0);
        ck_assert_uint_eq(taken.n, 1);
        ck_assert_int_eq(taken.taken[0].sum, sum);
        ck_assert_uint_eq(taken.taken[0].key, clock % 3 == 0 ? 9 : clock % 3 == 1 ? 7 : 8);
    }
    push(adds, 0, 0, 100, 1); /* what was not taken is freed */
    deferred_adds_free(adds);
}
END_TEST

/* ---- whole Adds ---- */

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % limit;
}

enum { WHOLE_PARTS = 3, PART_KEYS = 10, WHOLE_KEYS = WHOLE_PARTS * PART_KEYS };

/* Rows to which each Add is noted by its number, in the order in which they come. */
typedef struct {
    uint32_t part; /* WHOLE_PARTS: all */
    uint64_t n_rows;
    GString *rows[WHOLE_KEYS];
} Rows;

static void note_row(Rows *rows, RubatoKey key, int64_t delta)
{
    g_string_append_printf(rows->rows[key], "%" G_GINT64_FORMAT " ", delta);
    rows->n_rows++;
}

static void note_rows(void *user, RubatoRequest *request)
{
    Rows *const rows = user;
    const RubatoKeys *const keys = &request->keys;

    ck_assert_uint_gt(keys->n, 0);
    for (size_t i = 0; i < keys->n; i++) {
        const size_t at = keys->at != NULL ? keys->at[i] : i;

        if (rows->part < WHOLE_PARTS)
            ck_assert_uint_eq(keys->keys[at] / PART_KEYS, rows->part);
        note_row(rows, keys->keys[at], ((const int64_t *)request->input)[at]);
    }
}

static Rows rows_new(void)
{
    Rows rows = { 0 };

    for (int i = 0; i < WHOLE_KEYS; i++)
        rows.rows[i] = g_string_new(NULL);
    return rows;
}

static void rows_clear(Rows *rows)
{
    for (int i = 0; i < WHOLE_KEYS; i++)
        g_string_free(rows->rows[i], TRUE);
}

/* Adds an Add of random keys, whole or cut, and notes what the rows are to get. */
static void push_random(DeferredAdds *adds, uint64_t *random, uint32_t worker, uint64_t clock,
                        Rows *expected)
{
    const bool is_whole = random_below(random, 3) > 0;
    const size_t n = 1 + random_below(random, 40);
    const RubatoKey first = random_below(random, WHOLE_PARTS) * PART_KEYS;
    RubatoKey keys[41];
    int64_t deltas[41];

    for (size_t i = 0; i < n; i++) {
        keys[i] =
            is_whole ? random_below(random, WHOLE_KEYS) : first + random_below(random, PART_KEYS);
        deltas[i] = (int64_t)expected->n_rows;
        note_row(expected, keys[i], deltas[i]);
    }
    const RubatoRequest request = {
        .worker = worker, .clock = clock, .keys = { .keys = keys, .n = n }, .input = deltas
    };

    if (is_whole)
        ck_assert(deferred_adds_push_whole(adds, &request, sizeof *deltas));
    else
        ck_assert(
            deferred_adds_push(adds, (uint32_t)(first / PART_KEYS), &request, sizeof *deltas));
}

/* Each row gets its Adds once, in the order of clocks and workers, and in that in which a worker
 * made them, whether parts take them one by one, up to different turns, or all at once. */
START_TEST(whole_adds_come_to_each_part_in_order)
{
    static const RubatoKey firsts[] = { 0, PART_KEYS, 2 * PART_KEYS };
    const uint32_t n_workers = 1 + (uint32_t)_i % WORKERS;
    DeferredAdds *const adds = deferred_adds_new(WHOLE_PARTS, n_workers, &node_clock);
    Rows expected = rows_new(), rows = rows_new();
    uint64_t random = (uint64_t)_i + 1;
    uint64_t n_at_once = 0;

    ck_assert(!deferred_adds_may_be_whole(adds));
    ck_assert(deferred_adds_allow_whole(adds, firsts));
    ck_assert(deferred_adds_may_be_whole(adds));
    for (uint64_t clock = 0; clock < 200; clock++) {
        const uint64_t end = deferred_adds_turn_of(adds, clock + 1, 0);
        const uint64_t due = end - random_below(&random, n_workers + 1);

        for (uint32_t worker = 0; worker < n_workers; worker++)
            for (uint32_t n = random_below(&random, 4); n > 0; n--)
                push_random(adds, &random, worker, clock, &expected);
        for (uint32_t part = 0; part < WHOLE_PARTS; part++)
            if (random_below(&random, 4) == 0) {
                rows.part = part;
                deferred_adds_take(adds, part, due, note_rows, &rows);
                ck_assert_uint_eq(deferred_adds_turn(adds, part), due);
            }
        rows.part = WHOLE_PARTS;
        if (random_below(&random, 2) == 0)
            (void)deferred_adds_take_whole(adds, due, note_rows, &rows);
        if (random_below(&random, 2) == 0 &&
            deferred_adds_take_whole(adds, end, note_rows, &rows)) {
            n_at_once++;
            ck_assert_uint_eq(rows.n_rows, expected.n_rows);
            ck_assert_uint_eq(deferred_adds_turn(adds, (uint32_t)_i % WHOLE_PARTS), end);
        }
        for (uint32_t part = 0; part < WHOLE_PARTS; part++) {
            rows.part = part;
            deferred_adds_take(adds, part, end, note_rows, &rows);
        }
        for (int i = 0; i < WHOLE_KEYS; i++)
            ck_assert_str_eq(rows.rows[i]->str, expected.rows[i]->str);
    }
    ck_assert_uint_gt(n_at_once, 0);
    ck_assert_uint_lt(n_at_once, 150);
    push_random(adds, &random, 0, 200, &expected); /* what was not taken is freed */
    deferred_adds_free(adds);
    rows_clear(&expected);
    rows_clear(&rows);
}
END_TEST

/* The last key is in the last part, and those before its first key are not. */
START_TEST(the_last_part_ends_with_the_last_key)
{
    static const RubatoKey firsts[] = { UINT64_MAX - 19, UINT64_MAX - 9 };
    const RubatoKey keys[] = { UINT64_MAX, UINT64_MAX - 9, UINT64_MAX - 10, UINT64_MAX - 19 };
    const int64_t deltas[] = { 1, 2, 4, 8 };
    const RubatoRequest request = { .keys = { .keys = keys, .n = 4 }, .input = deltas };
    DeferredAdds *const adds = deferred_adds_new(2, 1, &node_clock);

    ck_assert(deferred_adds_allow_whole(adds, firsts));
    ck_assert(deferred_adds_push_whole(adds, &request, sizeof *deltas));
    for (uint32_t part = 0; part < 2; part++) {
        Taken taken = { 0 };

        deferred_adds_take(adds, part, 1, note_selection, &taken);
        ck_assert_uint_eq(taken.n, 1);
        ck_assert_int_eq(taken.taken[0].sum, part == 0 ? 12 : 3);
    }
    deferred_adds_free(adds);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deferred Adds");
    TCase *cases = tcase_create("deferred");

    tcase_add_test(cases, adds_come_in_the_order_of_clocks_and_workers);
    tcase_add_loop_test(cases, a_turn_ends_before_the_next_worker, 1, 2 * WORKERS);
    tcase_add_test(cases, a_worker_s_own_come_up_to_a_clock);
    tcase_add_test(cases, a_worker_finds_its_last_add);
    tcase_add_test(cases, adds_may_be_looked_at_before_they_are_taken);
    tcase_add_test(cases, keys_and_deltas_are_copied_whatever_their_form_and_size);
    tcase_add_loop_test(cases, whole_adds_come_to_each_part_in_order, 0, 9);
    tcase_add_test(cases, the_last_part_ends_with_the_last_key);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
