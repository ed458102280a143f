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

int main(void)
{
    Suite *suite = suite_create("deferred Adds");
    TCase *cases = tcase_create("deferred");

    tcase_add_test(cases, adds_come_in_the_order_of_clocks_and_workers);
    tcase_add_loop_test(cases, a_turn_ends_before_the_next_worker, 1, 2 * WORKERS);
    tcase_add_test(cases, a_worker_s_own_come_up_to_a_clock);
    tcase_add_test(cases, adds_may_be_looked_at_before_they_are_taken);
    tcase_add_test(cases, keys_and_deltas_are_copied_whatever_their_form_and_size);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
