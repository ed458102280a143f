/* When rows expire: by clocks, by their score, by a function of the user's; and what requests see
 * of it. test_expiry_sweep.c has what sweeps remove. */
#include <rubato/error.h>
#include <rubato/plugin.h>
#include <string.h>

#include "models/handlers/handler.h"
#include "models/shard/image.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/expiring_rows.h"
#include "tests/support/engine/model_rig.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

/* ---- what requests see ---- */

START_TEST(a_row_expires_once_nothing_has_been_written_for_long)
{
    RubatoTableSpec spec = expiring_by_clocks(expiring_shapes[_i], 3);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const double fresh = get_number(shard, 5);

    for (RubatoKey key = 0; key < 2; key++) { /* key 0 is stored apart */
        set_number(shard, key, 7);
        shard_pass_time(shard, 2);
        ck_assert_double_eq(get_number(shard, key), 7);
        set_number(shard, key, 8); /* begins its age anew */
        shard_pass_time(shard, 2);
        ck_assert_double_eq(get_number(shard, key), 8);
        shard_pass_time(shard, 1);
        ck_assert_double_eq(get_number(shard, key), fresh);
        ck_assert_uint_eq(shard_n_rows(shard), 1); /* no sweep has come */
        add_number(shard, key, 1);
        ck_assert_double_ne(get_number(shard, key), fresh);
        ck_assert_double_ne(get_number(shard, key), 8);
        ck_assert_uint_eq(shard_n_rows(shard), 1);
        ck_assert_uint_eq(n_expired(shard), 2 * key + 1);
        shard_pass_time(shard, 3);
        sweep_all(shard);
        ck_assert_uint_eq(shard_n_rows(shard), 0);
        ck_assert_uint_eq(n_expired(shard), 2 * key + 2);
        ck_assert_double_eq(get_number(shard, key), fresh);
    }
    shard_free(shard);
}
END_TEST

/* ---- admission, handlers, state ---- */

START_TEST(a_key_whose_row_has_expired_is_admitted_anew)
{
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = 1 }, 2);
    RubatoShard *shard;
    const RubatoKey listed = 3;

    spec.admit = "list";
    spec.admit_keys = &listed;
    spec.n_admit_keys = 1;
    shard = shard_make(&spec, "hash", 0);
    set_number(shard, 4, 1); /* a Set makes rows in any case */
    add_number(shard, 3, 1);
    shard_pass_time(shard, 2);
    add_number(shard, 4, 1);
    add_number(shard, 3, 1);
    ck_assert_double_eq(get_number(shard, 4), 100);
    ck_assert_double_eq(get_number(shard, 3), 101);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 1);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 2);
    ck_assert_uint_eq(n_expired(shard), 2);
    shard_free(shard);
}
END_TEST

/* How many rows a handler of all rows sees. */
static uint64_t count_all(RubatoShard *shard)
{
    HandlerCall call = { .ops = handler_find("count"), .arguments = "", .is_whole = true };
    uint64_t n;

    handler_run(&call, shard, &(RubatoKeys){ .n = 0 });
    require_msg(call.answer.n_bytes >= sizeof n, "no answer");
    memcpy(&n, call.answer.bytes, sizeof n);
    handler_answer_clear(&call.answer);
    return n;
}

static void scale_all(RubatoShard *shard, double factor)
{
    HandlerCall call = { .ops = handler_find("scale"),
                         .arguments = &factor,
                         .n_bytes = sizeof factor,
                         .is_whole = true };

    handler_run(&call, shard, &(RubatoKeys){ .n = 0 });
    require_msg(call.answer.failure == NULL, "%s", call.answer.failure);
}

START_TEST(a_handler_of_all_rows_sees_those_that_have_not_expired)
{
    enum { N = 2000 };
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = 1 }, 2);
    RubatoShard *shard = shard_make(&spec, "hash", 0);

    for (RubatoKey key = 0; key < N; key++)
        set_number(shard, key, 1);
    shard_pass_time(shard, 1);
    for (RubatoKey key = 0; key < N / 2; key++)
        set_number(shard, key, 1);
    ck_assert_uint_eq(count_all(shard), N);
    shard_pass_time(shard, 1);
    ck_assert_uint_eq(count_all(shard), N / 2);
    scale_all(shard, 3); /* a write */
    shard_pass_time(shard, 1);
    ck_assert_uint_eq(count_all(shard), N / 2);
    ck_assert_double_eq(get_number(shard, 0), 3);
    ck_assert_double_eq(get_number(shard, N / 2), 100);
    shard_free(shard);
}
END_TEST

/* What a part that moves takes along: rows, their state, and the time. */
START_TEST(rows_that_move_expire_when_they_would_have)
{
    RubatoTableSpec spec = expiring_by_clocks(expiring_shapes[_i], 5);
    RubatoShard *from = shard_make(&spec, "hash", 0), *to = shard_make(&spec, "hash", 0);
    const RubatoKey keys[] = { 0, 1, 2 };
    const RubatoKeys all = { .keys = keys, .n = 3 };
    g_autofree void *values = g_malloc(3 * spec_row_bytes(&spec));
    g_autofree void *states = g_malloc(3 * spec_state_bytes(&spec));
    const double fresh = get_number(to, 1);
    StorageUses uses;

    shard_pass_time(from, 100);
    set_number(from, 2, 1);
    shard_pass_time(from, 3);
    set_number(from, 1, 1);
    set_number(from, 0, 1);
    shard_pass_time(from, 1);
    uses = shard_uses(from);
    shard_set_uses(to, &uses);
    shard_get(from, &all, values);
    shard_set(to, &all, values);
    shard_get_state(from, &all, states);
    shard_set_state(to, &all, states);
    shard_pass_time(to, 1);
    ck_assert_double_eq(get_number(to, 2), fresh);
    ck_assert_double_eq(get_number(to, 1), 1);
    shard_pass_time(to, 2);
    ck_assert_double_eq(get_number(to, 1), 1);
    shard_pass_time(to, 1);
    ck_assert_double_eq(get_number(to, 0), fresh);
    ck_assert_double_eq(get_number(to, 1), fresh);
    shard_free(from);
    shard_free(to);
}
END_TEST

/* A row of which nothing shows any more takes no state along, though its time may come again: a
 * snapshot does not have that of the table. */
START_TEST(a_row_that_has_expired_takes_no_state_along)
{
    enum { WITH_STATE = 4 }; /* of the shapes */
    RubatoTableSpec spec = expiring_by_clocks(expiring_shapes[WITH_STATE], 5);
    RubatoShard *from = shard_make(&spec, "hash", 0), *to = shard_make(&spec, "hash", 0);
    const RubatoKey keys[] = { 0, 1 }; /* key 0 is stored apart */
    const RubatoKeys all = { .keys = keys, .n = 2 };
    g_autofree void *values = g_malloc(2 * spec_row_bytes(&spec));
    g_autofree void *states = g_malloc(2 * spec_state_bytes(&spec));

    ck_assert_uint_gt(spec_state_bytes(&spec), spec_stamp_bytes(&spec));
    add_number(from, 0, 10);
    add_number(from, 1, 10);
    shard_pass_time(from, 5);
    shard_get(from, &all, values);
    shard_get_state(from, &all, states);
    shard_set(to, &all, values);
    shard_set_state(to, &all, states);
    ck_assert_uint_eq(shard_uses(to).time, 0); /* no row has been written later */
    for (RubatoKey key = 0; key < 3; key++)
        add_number(to, key, 1);
    ck_assert_double_eq(get_number(to, 0), get_number(to, 2));
    ck_assert_double_eq(get_number(to, 1), get_number(to, 2));
    shard_free(from);
    shard_free(to);
}
END_TEST

/* A snapshot has rows and stamps, and not the time of the table. */
START_TEST(the_time_is_never_before_a_row_was_written)
{
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = 1 }, 5);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const uint32_t stamps[] = { 40, 38 };

    set_number(shard, 1, 1);
    set_number(shard, 2, 1);
    shard_set_state(shard, &(RubatoKeys){ .first = 1, .n = 2 }, stamps);
    ck_assert_uint_eq(shard_uses(shard).time, 40);
    shard_pass_time(shard, 3);
    ck_assert_double_eq(get_number(shard, 1), 1);
    ck_assert_double_eq(get_number(shard, 2), 100);
    shard_free(shard);
}
END_TEST

START_TEST(time_ends_and_never_goes_back)
{
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = 1 }, 5);
    RubatoShard *shard = shard_make(&spec, "hash", 0);

    shard_reach_time(shard, 10);
    shard_reach_time(shard, 9);
    ck_assert_uint_eq(shard_uses(shard).time, 10);
    shard_pass_time(shard, UINT64_MAX);
    ck_assert_uint_eq(shard_uses(shard).time, UINT32_MAX);
    shard_reach_time(shard, UINT64_MAX);
    set_number(shard, 1, 1);
    shard_pass_time(shard, 1);
    ck_assert_double_eq(get_number(shard, 1), 1);
    shard_set_uses(shard, &(StorageUses){ .time = UINT64_MAX });
    ck_assert_uint_eq(shard_uses(shard).time, UINT32_MAX);
    shard_free(shard);
}
END_TEST

/* ---- clocks ---- */

static const RubatoTableSpec models[] = {
    { .model = "asp" },
    { .model = "bsp" },
    { .model = "ssp", .staleness = 1 },
    { .model = "sparse_ssp", .staleness = 1, .speculation = 1 },
};

START_TEST(time_passes_with_the_slowest_worker)
{
    RubatoTableSpec spec = models[_i];
    const RubatoKey keys[] = { 1 };
    ModelRig rig;

    spec.storage = "hash";
    spec.expire = "clocks";
    spec.expire_after = 2;
    rig_init(&rig, &spec, 2);
    if (_i == 3)
        for (uint32_t worker = 0; worker < 2; worker++)
            for (uint64_t clock = 0; clock < 6; clock++)
                rig_announce(&rig, worker, clock, keys, 1);
    rig_add(&rig, 0, 0, 1, 5);
    for (uint64_t clock = 1; clock <= 5; clock++)
        rig_clock(&rig, 0, clock);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 0);
    rig_clock(&rig, 1, 1);
    ck_assert_int_eq(rig_read(&rig, 1), 5); /* bsp applies it now */
    rig_clock(&rig, 1, 2);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 2);
    if (strcmp(spec.model, "bsp") == 0)
        rig_clock(&rig, 1, 3); /* it was written at clock 1 */
    ck_assert_int_eq(rig_read(&rig, 1), 0);
    rig_clock(&rig, 1, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 5);
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 5);
    rig_clear(&rig);
}
END_TEST

START_TEST(clocks_that_come_with_a_part_are_no_time)
{
    RubatoTableSpec spec = {
        .model = "ssp", .storage = "hash", .expire = "clocks", .expire_after = 2
    };
    const uint64_t clocks[] = { 7, 9 };
    ModelRig rig;

    rig_init(&rig, &spec, 2);
    model_set_clocks(rig.model, 0, 2, clocks);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 0);
    rig_clock(&rig, 0, 8);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 1);
    rig_clear(&rig);
}
END_TEST

/* ---- scores ---- */

static const RubatoTableSpec clicks = { .width = 2,
                                        .expire = "score",
                                        .expire_below = 0.5,
                                        .expire_decay = 0.5,
                                        .expire_show_weight = 0.25,
                                        .expire_click_weight = 2 };

START_TEST(a_row_expires_when_its_score_is_too_low)
{
    const float deltas[] = { 5, 1, 4, 0 }; /* scores 3 and 1 */
    const RubatoKey keys[] = { 1, 2 };
    const RubatoKeys both = { .keys = keys, .n = 2 };
    RubatoTableSpec spec = clicks;
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    float rows[4];

    shard_add(shard, &both, deltas);
    shard_pass_time(shard, 1); /* 1.5 and .5 */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5);
    ck_assert_float_eq(rows[2], 4);
    shard_pass_time(shard, 1); /* .75 and .25 */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5);
    ck_assert_float_eq(rows[2], 0);
    shard_add(shard, &both, deltas); /* what was there has decayed */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5 + 1.25F);
    ck_assert_float_eq(rows[1], 1.25F);
    ck_assert_float_eq(rows[2], 4);
    shard_pass_time(shard, 20);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 0);
    shard_free(shard);
}
END_TEST

/* A table at its bound: rows with clicks stay, whenever they were written. */
static void add_clicks(RubatoShard *shard, RubatoKey first, RubatoKey n, float shows,
                       float n_clicks)
{
    enum { AT_ONCE = 200 };
    float deltas[AT_ONCE * 2];

    for (RubatoKey begin = 0; begin < n; begin += AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            deltas[2 * i] = shows;
            deltas[2 * i + 1] = n_clicks;
        }
        shard_add(shard, &(RubatoKeys){ .first = first + begin, .n = AT_ONCE }, deltas);
    }
}

START_TEST(the_row_with_the_lowest_score_is_evicted)
{
    enum { N_GOOD = 20000, N_OTHERS = 200000 };
    RubatoTableSpec spec = clicks;
    RubatoShard *shard;
    g_autofree float *rows = g_new(float, N_GOOD * 2);
    size_t n_there = 0;

    spec.max_bytes = 3 << 20;
    spec.evict = "score";
    shard = shard_make(&spec, "hash", 0);
    add_clicks(shard, 1, N_GOOD, 9, 3); /* written first, and once */
    add_clicks(shard, 1000000, N_OTHERS, 9, 0);
    ck_assert_uint_gt(shard_uses(shard).n_evicted, N_OTHERS / 4);
    shard_get(shard, &(RubatoKeys){ .first = 1, .n = N_GOOD }, rows);
    for (size_t i = 0; i < N_GOOD; i++)
        n_there += rows[2 * i] > 0;
    require_msg(n_there > N_GOOD - N_GOOD / 100, "%zu are there", n_there);
    shard_free(shard);
}
END_TEST

/* ---- a function of the user's ---- */

static bool is_odd_and_old(const RubatoTableSpec *spec, RubatoKey key, const void *values,
                           uint32_t age)
{
    return key % 2 == 1 && age >= spec->expire_after && *(const float *)values < 10;
}

static const RubatoExpiryOps odd_expiry = { .name = "odd", .expires = is_odd_and_old };

START_TEST(a_function_of_the_users_says_what_expires)
{
    RubatoTableSpec spec = { .expire = "odd", .expire_after = 2 };
    const RubatoExpiryOps unfit[] = { { .name = "none" },
                                      { .name = "unit", .expires = is_odd_and_old, .unit = 7 },
                                      { .name = "score", .expires = is_odd_and_old } };
    RubatoShard *shard;

    for (size_t i = 0; i < G_N_ELEMENTS(unfit); i++)
        ck_assert(!rubato_register_expiry(&unfit[i], NULL));
    ck_assert(rubato_register_expiry(&odd_expiry, NULL));
    ck_assert_str_eq(rubato_expiry_name(3), "odd");
    shard = shard_make(&spec, "hash", 0);
    set_number(shard, 1, 5);
    set_number(shard, 2, 5);
    set_number(shard, 3, 50);
    shard_pass_time(shard, 2);
    ck_assert_double_eq(get_number(shard, 1), 0);
    ck_assert_double_eq(get_number(shard, 2), 5);
    ck_assert_double_eq(get_number(shard, 3), 50);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 2);
    shard_free(shard);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    RubatoTableSpec spec;
    const char *text;
} refused[] = {
    { { .expire = "clock" }, "there is no expiry \"clock\"; known are never, clocks, score" },
    { { .expire = "clocks" }, "expire_after is 0; \"clocks\" needs 1 at least" },
    { { .expire = "seconds" }, "expire_after is 0; \"seconds\" needs 1 at least" },
    { { .expire_after = 1 }, "expire_after has no effect here" },
    { { .expire = "clocks", .expire_after = 1, .n_keys = 9 }, "expire has no effect here" },
    { { .expire = "clocks", .expire_after = 1, .create_on_get = true }, "create_on_get" },
    { { .expire = "clocks", .expire_after = 1, .expire_below = 1 }, "expire_below has no effect" },
    { { .expire = "clocks", .expire_after = 1, .expire_decay = 1 }, "expire_decay has no effect" },
    { { .expire = "seconds", .expire_after = 1, .expire_show_weight = 1 },
      "expire_show_weight has no effect" },
    { { .expire = "seconds", .expire_after = 1, .expire_click_weight = 1 },
      "expire_click_weight has no effect" },
    { { .expire = "seconds", .expire_after = 1, .shape = RUBATO_SHAPE_RAGGED },
      "expire has no effect here; it needs rows of one length" },
    { { .expire = "score", .expire_below = 1, .expire_after = 1, .width = 2 },
      "expire_after has no effect" },
    { { .expire = "score", .expire_below = 1 }, "a width of 2 at least" },
    { { .expire = "score", .expire_below = 1, .width = 2, .update = "sgd" }, "such as \"add\"" },
    { { .expire = "score", .expire_below = 1, .width = 2, .dtype = RUBATO_I32 }, "RUBATO_F32" },
    { { .expire = "score", .width = 2 }, "expire_below is 0" },
    { { .evict = "score", .max_bytes = 8 << 20 }, "evict = \"score\" has no effect here" },
    { { .evict = "score", .max_bytes = 8 << 20, .expire = "clocks", .expire_after = 1 },
      "it needs expire = \"score\"" },
    { { .expire = "score", .width = 2, .expire_below = 1, .expire_decay = 1 },
      "expire_decay is 1" },
    { { .expire = "score", .width = 2, .expire_below = 1, .expire_show_weight = -1 },
      "may not be below 0" },
};

START_TEST(specs_that_make_no_sense_are_refused)
{
    RubatoTableSpec spec = refused[_i].spec;
    g_autoptr(GError) error = NULL;

    spec.name = "t";
    ck_assert(!spec_check(&spec, &error));
    ck_assert_msg(strstr(error->message, refused[_i].text) != NULL, "%s", error->message);
}
END_TEST

START_TEST(a_table_whose_rows_expire_has_no_image)
{
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .name = "t", .width = 1 }, 1);

    ck_assert_str_eq(shard_image_fault(&spec), "its rows expire (expire)");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("expiry");
    TCase *tcase = tcase_create("expiry");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, a_row_expires_once_nothing_has_been_written_for_long, 0,
                        N_EXPIRING_SHAPES);
    tcase_add_test(tcase, a_key_whose_row_has_expired_is_admitted_anew);
    tcase_add_test(tcase, a_handler_of_all_rows_sees_those_that_have_not_expired);
    tcase_add_loop_test(tcase, rows_that_move_expire_when_they_would_have, 0, N_EXPIRING_SHAPES);
    tcase_add_test(tcase, a_row_that_has_expired_takes_no_state_along);
    tcase_add_test(tcase, the_time_is_never_before_a_row_was_written);
    tcase_add_test(tcase, time_ends_and_never_goes_back);
    tcase_add_loop_test(tcase, time_passes_with_the_slowest_worker, 0, G_N_ELEMENTS(models));
    tcase_add_test(tcase, clocks_that_come_with_a_part_are_no_time);
    tcase_add_test(tcase, a_row_expires_when_its_score_is_too_low);
    tcase_add_test(tcase, the_row_with_the_lowest_score_is_evicted);
    tcase_add_test(tcase, a_function_of_the_users_says_what_expires);
    tcase_add_loop_test(tcase, specs_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(refused));
    tcase_add_test(tcase, a_table_whose_rows_expire_has_no_image);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
