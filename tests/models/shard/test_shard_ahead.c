/* A shard whose rows are sent ahead notes those that change meanwhile (models/shard/ahead.h). */
#include "models/shard/ahead.h"
#include "tests/support/engine/expiring_rows.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 1000 };

static const char *const storages[] = { "dense", "hash" };

static void add(RubatoShard *shard, RubatoKey first, size_t n)
{
    const float deltas[N_KEYS] = { 0 };

    shard_add(shard, &(RubatoKeys){ .first = SHARD_FIRST_KEY + first, .n = n }, deltas);
}

static void check_taken(RubatoShard *shard, size_t n)
{
    g_autoptr(GArray) keys = NULL;

    ck_assert(shard_is_ahead(shard));
    keys = shard_take_ahead(shard);
    ck_assert_uint_eq(keys->len, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(g_array_index(keys, RubatoKey, i), SHARD_FIRST_KEY + i);
}

/* Each of them once; and again once they have been taken. */
START_TEST(rows_that_change_are_noted)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *const shard = shard_make(&spec, storages[_i], N_KEYS);

    add(shard, 500, 10); /* before */
    ck_assert(!shard_is_ahead(shard));
    shard_begin_ahead(shard);
    check_taken(shard, 0);
    add(shard, 0, 3);
    add(shard, 1, 6); /* some are new */
    add(shard, 0, 7);
    check_taken(shard, 7);
    check_taken(shard, 0);
    add(shard, 0, N_KEYS);
    check_taken(shard, N_KEYS);
    shard_end_ahead(shard);
    ck_assert(!shard_is_ahead(shard));
    add(shard, 0, 1);
    shard_begin_ahead(shard);
    check_taken(shard, 0);
    shard_free(shard); /* with its notes */
}
END_TEST

START_TEST(rows_that_are_evicted_are_noted)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .max_bytes = 2 << 20 };
    RubatoShard *const shard = shard_make(&spec, "hash", 0);
    uint64_t n_evicted;
    RubatoKey last = SHARD_FIRST_KEY;

    while (shard_uses(shard).n_evicted == 0)
        add(shard, last++ - SHARD_FIRST_KEY, 1);
    n_evicted = shard_uses(shard).n_evicted;
    shard_begin_ahead(shard);
    while (shard_uses(shard).n_evicted == n_evicted)
        add(shard, last++ - SHARD_FIRST_KEY, 1);
    g_autoptr(GArray) keys = shard_take_ahead(shard);
    size_t n_gone = 0;

    for (guint i = 0; i < keys->len; i++)
        n_gone += shard_leave_out_absent(shard, &g_array_index(keys, RubatoKey, i), 1) == 0;
    ck_assert_uint_eq(n_gone, 1);
    shard_free(shard);
}
END_TEST

START_TEST(no_sweep_removes_rows_that_are_sent_ahead)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .expire = "clocks", .expire_after = 3 };
    RubatoShard *const shard = shard_make(&spec, "hash", N_KEYS);
    RubatoKey keys[] = { SHARD_FIRST_KEY, SHARD_FIRST_KEY + 4, SHARD_FIRST_KEY + 5 };

    add(shard, 0, 5);
    shard_begin_ahead(shard);
    shard_pass_time(shard, 3);
    add(shard, 0, 1);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 5);
    ck_assert_uint_eq(shard_leave_out_absent(shard, keys, 3), 2); /* one of them has expired */
    shard_end_ahead(shard);
    ck_assert_uint_eq(shard_leave_out_absent(shard, keys, 2), 1);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 1);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("shard ahead");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, rows_that_change_are_noted, 0, 2);
    tcase_add_test(cases, rows_that_are_evicted_are_noted);
    tcase_add_test(cases, no_sweep_removes_rows_that_are_sent_ahead);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
