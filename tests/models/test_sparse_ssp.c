/* SparseSSP: which Gets wait for which workers' keys. Three workers, speculation 1 and 2, both
 * records. Worker 0 is the slow one in most cases and worker 2 the fast one. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/key_uses/key_uses.h"
#include "models/shard/shard.h"
#include "tests/support/engine/model_rig.h"
#include "tests/support/runner.h"

#define KEYS(...) ((const RubatoKey[]){ __VA_ARGS__ })
#define ANNOUNCE(rig, worker, iteration, ...) \
    rig_announce(rig, worker, iteration, KEYS(__VA_ARGS__), G_N_ELEMENTS(KEYS(__VA_ARGS__)))
#define ANNOUNCE_PART(rig, worker, iteration, n_all, ...)                                         \
    rig_announce_part(rig, worker, iteration, KEYS(__VA_ARGS__), G_N_ELEMENTS(KEYS(__VA_ARGS__)), \
                      n_all)
#define GET(rig, get, worker, clock, ...) \
    rig_get(rig, get, worker, clock, KEYS(__VA_ARGS__), G_N_ELEMENTS(KEYS(__VA_ARGS__)))

static const char *const records[] = { "hash", "dense" };

#define RECORD (records[_i % 2])
#define N_RECORDS 2

static void init(ModelRig *rig, const char *uses, uint32_t staleness, uint32_t speculation,
                 uint32_t n_workers)
{
    const RubatoTableSpec spec = {
        .model = "sparse_ssp",
        .storage = "dense",
        .record = uses,
        .staleness = staleness,
        .speculation = speculation,
    };

    rig_init(rig, &spec, n_workers);
}

START_TEST(disjoint_keys_let_a_worker_run_ahead_up_to_the_speculation)
{
    for (uint32_t speculation = 1; speculation <= 2; speculation++) {
        ModelRig rig;
        RigGet get, beyond;

        init(&rig, RECORD, 0, speculation, 3);
        for (uint64_t iteration = 0; iteration < speculation; iteration++) {
            ANNOUNCE(&rig, 0, iteration, 0, 1);
            ANNOUNCE(&rig, 1, iteration, 2, 3);
        }
        for (uint64_t clock = 1; clock <= speculation; clock++) {
            rig_clock(&rig, 2, clock);
            GET(&rig, &get, 2, clock, 4, 5);
            ck_assert(get.is_answered);
        }
        rig_clock(&rig, 2, speculation + 1);
        GET(&rig, &beyond, 2, speculation + 1, 4, 5);
        ck_assert(!beyond.is_answered);
        rig_clock(&rig, 0, 1);
        ck_assert(!beyond.is_answered);
        ANNOUNCE(&rig, 0, speculation, 0, 1);
        ANNOUNCE(&rig, 1, speculation, 2, 3);
        ck_assert(!beyond.is_answered);
        rig_clock(&rig, 1, 1);
        ck_assert(beyond.is_answered);
        rig_clear(&rig);
    }
}
END_TEST

START_TEST(colliding_keys_hold_a_worker_at_the_staleness_bound)
{
    for (uint32_t speculation = 1; speculation <= 2; speculation++) {
        ModelRig rig;
        RigGet get;

        init(&rig, RECORD, 0, speculation, 3);
        for (uint64_t iteration = 0; iteration < speculation; iteration++) {
            ANNOUNCE(&rig, 0, iteration, 0, 1);
            ANNOUNCE(&rig, 1, iteration, 2, 3);
        }
        rig_clock(&rig, 2, 1);
        GET(&rig, &get, 2, 1, 4, 1);
        ck_assert(!get.is_answered);
        rig_clock(&rig, 1, 1); /* not the one that it waits for */
        ck_assert(!get.is_answered);
        rig_add(&rig, 0, 0, 1, 77);
        rig_clock(&rig, 0, 1);
        ck_assert(get.is_answered);
        ck_assert_int_eq(get.values[1], 77);
        rig_clear(&rig);
    }
}
END_TEST

/* The collision lies in iteration 1 of worker 0: a Get at clock 1 need not wait for it, one at
 * clock 2 has to. */
START_TEST(keys_that_collide_later_hold_it_later)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 2, 3);
    ANNOUNCE(&rig, 0, 0, 0);
    ANNOUNCE(&rig, 0, 1, 9);
    ANNOUNCE(&rig, 1, 0, 2);
    ANNOUNCE(&rig, 1, 1, 3);
    rig_clock(&rig, 2, 1);
    GET(&rig, &get, 2, 1, 9);
    ck_assert(get.is_answered);
    rig_clock(&rig, 2, 2);
    GET(&rig, &get, 2, 2, 9);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 1, 1);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 2);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

/* Announcements are entered when a Get has to look for their keys; long ones count until then. Each
 * is found by a Get that needs it, and forgotten when its iteration is finished, looked for or not.
 */
START_TEST(announcements_of_any_length_are_found_and_forgotten)
{
    static const size_t lengths[] = { 1, 1024, 1025, 3000 };
    const size_t n = lengths[_i / N_RECORDS];
    const uint64_t n_counted = n > 1024 ? n : 0;
    RubatoKey *keys[4];
    ModelRig rig;
    RigGet get, other;

    init(&rig, RECORD, 0, 2, 3);
    for (RubatoKey key = 0; key < 4; key++) {
        keys[key] = g_new(RubatoKey, n);
        for (size_t i = 0; i < n; i++)
            keys[key][i] = key;
        if (key < 3)
            rig_announce(&rig, 0, key, keys[key], n); /* iteration i uses key i */
    }
    for (uint64_t iteration = 0; iteration < 4; iteration++)
        ANNOUNCE(&rig, 1, iteration, 9);
    rig_clock(&rig, 2, 1);
    ck_assert_uint_eq(model_n_to_look_at(rig.model), 3 * n_counted);
    rig_clock(&rig, 0, 1); /* nobody has looked for its iteration 0 */
    ck_assert_uint_eq(model_n_to_look_at(rig.model), 2 * n_counted);
    GET(&rig, &get, 2, 1, 0);
    ck_assert(get.is_answered);
    rig_clock(&rig, 2, 2);
    GET(&rig, &other, 2, 2, 0);
    ck_assert(other.is_answered);
    GET(&rig, &get, 2, 2, 1);
    ck_assert(!get.is_answered);
    ck_assert_uint_eq(model_n_to_look_at(rig.model), n_counted);
    rig_announce(&rig, 0, 3, keys[3], n);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 2);
    ck_assert(get.is_answered);
    rig_clock(&rig, 1, 1);
    rig_clock(&rig, 2, 3);
    GET(&rig, &other, 2, 3, 1);
    ck_assert(other.is_answered);
    GET(&rig, &get, 2, 3, 2);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 3);
    ck_assert(get.is_answered);
    ck_assert_uint_eq(model_n_ignored(rig.model), 0);
    for (RubatoKey key = 0; key < 4; key++)
        g_free(keys[key]);
    rig_clear(&rig);
}
END_TEST

/* The same with staleness: iterations later than c - s - 1 do not matter. */
START_TEST(staleness_shifts_what_counts_as_a_collision)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 2, 1, 3);
    for (uint32_t worker = 0; worker < 2; worker++) {
        ANNOUNCE(&rig, worker, 0, 0);
        ANNOUNCE(&rig, worker, 1, 9);
    }
    rig_clock(&rig, 2, 3);
    GET(&rig, &get, 2, 2, 0, 9);
    ck_assert(get.is_answered);
    GET(&rig, &get, 2, 3, 9);
    ck_assert(get.is_answered);
    GET(&rig, &get, 2, 3, 9, 0);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 1, 1);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_not_told_yet_counts_as_a_collision)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 1, 3);
    ANNOUNCE(&rig, 0, 0, 0);
    rig_clock(&rig, 2, 1);
    GET(&rig, &get, 2, 1, 4);
    ck_assert(!get.is_answered);
    ANNOUNCE(&rig, 1, 0, 2); /* now it is known to be none */
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_told_late_may_be_a_collision)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 1, 3);
    ANNOUNCE(&rig, 0, 0, 0);
    rig_clock(&rig, 2, 1);
    GET(&rig, &get, 2, 1, 4);
    ANNOUNCE(&rig, 1, 0, 2, 4);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 1, 1);
    ck_assert(get.is_answered); /* worker 0 still at 0, with other keys */
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 0);
    rig_clear(&rig);
}
END_TEST

/* A handle that tells nothing, on the same table. */
START_TEST(a_worker_that_never_tells_is_waited_for_as_under_ssp)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 1, 2, 2);
    rig_clock(&rig, 1, 2);
    GET(&rig, &get, 1, 1, 5);
    ck_assert(get.is_answered);
    GET(&rig, &get, 1, 2, 5);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_worker_that_will_tell_no_more_uses_no_keys)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 3, 2);
    ANNOUNCE(&rig, 0, 0, 1);
    rig_clock(&rig, 1, 3);
    GET(&rig, &get, 1, 3, 5);
    ck_assert(!get.is_answered);
    rig_announce(&rig, 0, RUBATO_CLOCK_RETIRED, NULL, 0);
    ck_assert(get.is_answered);
    GET(&rig, &get, 1, 3, 1); /* what it told before still stands */
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(the_announcements_of_a_retired_worker_vanish)
{
    ModelRig rig;
    RigGet gets[2];

    init(&rig, RECORD, 0, 2, 3);
    for (uint32_t worker = 0; worker < 2; worker++) {
        ANNOUNCE(&rig, worker, 0, 1);
        ANNOUNCE(&rig, worker, 1, 1);
    }
    rig_clock(&rig, 2, 2);
    GET(&rig, &gets[0], 2, 2, 1);
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    ck_assert(!gets[0].is_answered);
    ANNOUNCE(&rig, 0, 2, 1); /* came late */
    GET(&rig, &gets[1], 2, 1, 1);
    ck_assert(!gets[1].is_answered);
    rig_clock(&rig, 1, RUBATO_CLOCK_RETIRED);
    ck_assert(gets[0].is_answered && gets[1].is_answered);
    rig_clear(&rig);
}
END_TEST

/* One obstacle after the other, with three workers; and several Gets parked on the same one. */
START_TEST(a_get_goes_from_obstacle_to_obstacle)
{
    ModelRig rig;
    RigGet first, second;

    init(&rig, RECORD, 0, 2, 4);
    for (uint32_t worker = 0; worker < 2; worker++) {
        ANNOUNCE(&rig, worker, 0, 10, 11);
        ANNOUNCE(&rig, worker, 1, 12, 13);
    }
    rig_announce(&rig, 2, RUBATO_CLOCK_RETIRED, NULL, 0);
    rig_announce(&rig, 3, RUBATO_CLOCK_RETIRED, NULL, 0);
    rig_clock(&rig, 2, 2);
    rig_clock(&rig, 3, 2);
    GET(&rig, &first, 2, 2, 11, 13, 20);
    GET(&rig, &second, 3, 2, 13);
    rig_clock(&rig, 0, 1);
    ck_assert(!first.is_answered && !second.is_answered);
    rig_clock(&rig, 1, 2);
    ck_assert(!first.is_answered && !second.is_answered);
    rig_clock(&rig, 0, 2);
    ck_assert(first.is_answered && second.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_worker_is_not_held_back_by_itself)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 2, 2);
    rig_announce(&rig, 0, RUBATO_CLOCK_RETIRED, NULL, 0);
    ANNOUNCE(&rig, 1, 0, 1);
    ANNOUNCE(&rig, 1, 1, 1);
    GET(&rig, &get, 1, 1, 1); /* its clock is still on the way */
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

START_TEST(without_speculation_it_is_ssp)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 1, 0, 2);
    rig_announce(&rig, 0, RUBATO_CLOCK_RETIRED, NULL, 0);
    rig_clock(&rig, 1, 2);
    GET(&rig, &get, 1, 2, 3);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

/* Repeated announcements, ones out of turn, ones of finished iterations: nothing breaks, and no Get
 * waits for ever. */
START_TEST(announcements_out_of_turn_are_ignored)
{
    ModelRig rig;
    RigGet get;

    init(&rig, RECORD, 0, 3, 2);
    ANNOUNCE(&rig, 0, 1, 7); /* before iteration 0 */
    ANNOUNCE(&rig, 0, 0, 5);
    ANNOUNCE(&rig, 0, 0, 6); /* again */
    ck_assert_uint_eq(model_n_ignored(rig.model), 2);
    rig_clock(&rig, 1, 3);
    GET(&rig, &get, 1, 1, 6);
    ck_assert(get.is_answered);
    GET(&rig, &get, 1, 2, 6);
    ck_assert(!get.is_answered); /* iteration 1 counts as untold */
    rig_clock(&rig, 0, 2);
    ck_assert(get.is_answered);
    ANNOUNCE(&rig, 0, 1, 8); /* finished: of no interest, and no mistake */
    ck_assert_uint_eq(model_n_ignored(rig.model), 2);
    ANNOUNCE(&rig, 0, 2, 8); /* in turn again */
    GET(&rig, &get, 1, 3, 7);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

/* The keys of the last piece are as good as those of the first, and nothing counts as told
 * before. */
START_TEST(an_announcement_in_pieces_is_one)
{
    ModelRig rig;
    RigGet gets[6], free_get;

    init(&rig, RECORD, 0, 2, 2);
    rig_clock(&rig, 1, 1);
    ANNOUNCE_PART(&rig, 0, 0, 6, 10, 11);
    GET(&rig, &free_get, 1, 1, 30);
    ck_assert(!free_get.is_answered);
    ANNOUNCE_PART(&rig, 0, 0, 6, 12);
    ck_assert(!free_get.is_answered);
    ANNOUNCE_PART(&rig, 0, 0, 6, 13, 14, 15);
    ck_assert(free_get.is_answered);
    for (size_t i = 0; i < G_N_ELEMENTS(gets); i++) {
        GET(&rig, &gets[i], 1, 1, 10 + i);
        ck_assert_msg(!gets[i].is_answered, "key %zu is not protected", 10 + i);
    }
    ANNOUNCE_PART(&rig, 0, 1, 2, 20); /* the next iteration, in pieces as well */
    ANNOUNCE_PART(&rig, 0, 1, 2, 21);
    rig_clock(&rig, 1, 2);
    rig_add(&rig, 0, 0, 15, 3);
    rig_clock(&rig, 0, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(gets); i++)
        ck_assert(gets[i].is_answered);
    ck_assert_int_eq(gets[5].values[0], 3);
    GET(&rig, &free_get, 1, 2, 10);
    ck_assert(free_get.is_answered);
    GET(&rig, &gets[0], 1, 2, 21);
    ck_assert(!gets[0].is_answered);
    rig_clock(&rig, 0, 2);
    ck_assert(gets[0].is_answered);
    ck_assert_uint_eq(model_n_ignored(rig.model), 0);
    rig_clear(&rig);
}
END_TEST

/* Announcements that no honest node sends: the iteration stays untold until it is finished. */
static void tell_without_the_first(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 5, 12, 13);
}

static void tell_too_many(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 3, 10, 11);
    ANNOUNCE_PART(rig, 0, 0, 3, 12, 13);
}

static void tell_another_number(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 4, 10, 11);
    ANNOUNCE_PART(rig, 0, 0, 3, 12);
}

static void tell_another_iteration(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 4, 10, 11);
    ANNOUNCE_PART(rig, 0, 1, 4, 12, 13);
}

static void tell_the_whole_after_a_piece(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 4, 10, 11);
    ANNOUNCE(rig, 0, 0, 12, 13);
}

static void tell_the_end_after_a_piece(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, 4, 10, 11);
    rig_announce(rig, 0, RUBATO_CLOCK_RETIRED, NULL, 0);
}

static void tell_empty_pieces(ModelRig *rig)
{
    for (int i = 0; i < 10; i++)
        rig_announce_part(rig, 0, 0, NULL, 0, 4);
}

static void tell_more_than_there_can_be(ModelRig *rig)
{
    ANNOUNCE_PART(rig, 0, 0, KEY_USES_MAX_KEYS + 1, 10);
    ANNOUNCE_PART(rig, 0, 0, UINT64_MAX, 10);
}

static const struct {
    void (*tell)(ModelRig *rig);
    unsigned n_ignored;
} wrong_pieces[] = {
    { tell_without_the_first, 0 },       { tell_too_many, 1 },
    { tell_another_number, 1 },          { tell_another_iteration, 1 },
    { tell_the_whole_after_a_piece, 1 }, { tell_the_end_after_a_piece, 1 },
    { tell_empty_pieces, 10 },           { tell_more_than_there_can_be, 2 },
};

START_TEST(pieces_that_do_not_make_an_announcement_tell_nothing)
{
    ModelRig rig;
    RigGet get;

    init(&rig, records[_i % 2], 0, 2, 2);
    rig_clock(&rig, 1, 1);
    wrong_pieces[_i / 2].tell(&rig);
    ck_assert_uint_eq(model_n_ignored(rig.model), wrong_pieces[_i / 2].n_ignored);
    GET(&rig, &get, 1, 1, 30);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 1); /* nobody waits for ever */
    ck_assert(get.is_answered);
    ANNOUNCE_PART(&rig, 0, 1, 2, 40); /* in turn again */
    ANNOUNCE_PART(&rig, 0, 1, 2, 41);
    rig_clock(&rig, 1, 2);
    GET(&rig, &get, 1, 2, 30);
    ck_assert(get.is_answered);
    GET(&rig, &get, 1, 2, 41);
    ck_assert(!get.is_answered);
    rig_clock(&rig, 0, 2);
    ck_assert(get.is_answered);
    rig_clear(&rig);
}
END_TEST

/* Worker 2 is beyond the speculation until worker 0 begins its iteration 1. That tells worker 0's
 * clock and keys; if they are those of worker 2, it goes on waiting. */
START_TEST(an_iteration_in_one_tells_its_keys_and_its_clock_and_reads)
{
    for (RubatoKey key = 3; key <= 4; key++) {
        ModelRig rig;
        RigGet get, beyond;

        init(&rig, RECORD, 0, 1, 3);
        for (uint32_t worker = 0; worker < 3; worker++)
            ANNOUNCE(&rig, worker, 0, worker);
        rig_iterate(&rig, &get, 1, 1, KEYS(5), 1);
        ck_assert(get.is_answered);
        rig_iterate(&rig, &get, 2, 1, KEYS(4, 6), 2);
        ck_assert(get.is_answered);
        rig_iterate(&rig, &beyond, 2, 2, KEYS(4, 6), 2);
        ck_assert(!beyond.is_answered);
        rig_add(&rig, 0, 0, key, 77);
        rig_iterate(&rig, &get, 0, 1, KEYS(key), 1);
        ck_assert(get.is_answered);
        ck_assert_int_eq(get.values[0], 77);
        ck_assert(beyond.is_answered == (key != 4));
        rig_clock(&rig, 0, 2);
        ck_assert(beyond.is_answered);
        ck_assert_int_eq(beyond.values[0], key == 4 ? 77 : 0);
        ck_assert_uint_eq(rig.model->n_ignored, 0);
        rig_clear(&rig);
    }
}
END_TEST

START_TEST(a_dense_record_without_memory_is_an_error)
{
    const RubatoTableSpec spec = {
        .name = "t", .n_keys = UINT64_C(1) << 62, .model = "sparse_ssp", .record = "dense"
    };
    const RubatoModelSetup setup = { .spec = &spec, .n_workers = 1, .n_keys = spec.n_keys };
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(model_new(&setup, NULL, 1, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
}
END_TEST

/* The record by itself, against a plain list. */

typedef struct {
    RubatoKey key;
    uint64_t iteration;
    uint32_t worker;
} PlainUse;

static bool plain_find(const GArray *uses, RubatoKey key, uint64_t last, uint32_t reader)
{
    for (guint i = 0; i < uses->len; i++) {
        const PlainUse *use = &g_array_index(uses, PlainUse, i);

        if (use->key == key && use->iteration <= last && use->worker != reader)
            return true;
    }
    return false;
}

START_TEST(a_record_finds_what_was_entered_and_not_removed)
{
    const RubatoModelSetup setup = { .first_key = 100, .n_keys = 300 };
    KeyUses *told = key_uses_new(key_uses_find_ops(RECORD), &setup, NULL);
    g_autoptr(GArray) uses = g_array_new(FALSE, FALSE, sizeof(PlainUse));
    uint64_t first[4] = { 0 }, next[4] = { 0 };
    RubatoKey keys[4][64][10];
    GRand *rand = g_rand_new_with_seed((guint32)_i);
    unsigned n_wrong = 0;

    for (int step = 0; step < 3000; step++) {
        const uint32_t worker = (uint32_t)g_rand_int_range(rand, 0, 4);
        const bool enters = first[worker] == next[worker] ||
                            (next[worker] - first[worker] < 60 && g_rand_int_range(rand, 0, 5) < 3);
        const uint64_t iteration = enters ? next[worker]++ : first[worker]++;
        RubatoKey *some = keys[worker][iteration % 64];

        if (enters)
            for (size_t i = 0; i < 10; i++) {
                some[i] = 100 + (RubatoKey)g_rand_int_range(rand, 0, 300);
                const PlainUse use = { some[i], iteration, worker };
                g_array_append_val(uses, use);
            }
        const RubatoKeys list = { .keys = some, .n = 10 };
        if (enters)
            ck_assert(key_uses_add(told, worker, iteration, &list));
        else
            key_uses_remove(told, worker, iteration, &list);
        for (guint i = 0; !enters && i < uses->len;)
            if (g_array_index(uses, PlainUse, i).worker == worker &&
                g_array_index(uses, PlainUse, i).iteration == iteration)
                g_array_remove_index_fast(uses, i);
            else
                i++;

        for (RubatoKey key = 100; key < 400; key += 7) {
            const RubatoKeys one = { .first = key, .n = 1 };
            const uint64_t last = first[worker] + (uint64_t)g_rand_int_range(rand, 0, 40);
            const KeyUse *use = key_uses_find(told, &one, last, worker);

            n_wrong += (use != NULL) != plain_find(uses, key, last, worker);
            n_wrong +=
                use != NULL && (use->key != key || use->iteration > last || use->worker == worker);
        }
    }
    ck_assert_uint_eq(n_wrong, 0);
    key_uses_free(told);
    g_rand_free(rand);
}
END_TEST

/* A run of keys needs no bytes on the wire, so its length alone must not break anything. */
START_TEST(a_record_refuses_more_uses_than_it_can_hold)
{
    const RubatoModelSetup setup = { .n_keys = 10 };
    KeyUses *uses = key_uses_new(key_uses_find_ops("hash"), &setup, NULL);
    const RubatoKeys endless = { .first = 0, .n = SIZE_MAX };
    const RubatoKeys too_many = { .first = 0, .n = KEY_USES_MAX_KEYS + 1 };
    const RubatoKeys some = { .first = 5, .n = 3 };

    ck_assert(!key_uses_add(uses, 0, 0, &endless));
    ck_assert(!key_uses_add(uses, 0, 0, &too_many));
    ck_assert(key_uses_add(uses, 0, 0, &some));
    ck_assert_uint_eq(key_uses_find(uses, &some, 0, 1)->worker, 0);
    ck_assert_str_eq(key_uses_name(0), "hash");
    ck_assert_ptr_null(key_uses_name(2));
    ck_assert_ptr_null(key_uses_find_ops("list"));
    key_uses_free(uses);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sparse_ssp");
    TCase *scenarios = tcase_create("scenarios");
    TCase *record = tcase_create("record");

    tcase_add_loop_test(scenarios, disjoint_keys_let_a_worker_run_ahead_up_to_the_speculation, 0,
                        N_RECORDS);
    tcase_add_loop_test(scenarios, colliding_keys_hold_a_worker_at_the_staleness_bound, 0,
                        N_RECORDS);
    tcase_add_loop_test(scenarios, keys_that_collide_later_hold_it_later, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, staleness_shifts_what_counts_as_a_collision, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, what_is_not_told_yet_counts_as_a_collision, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, what_is_told_late_may_be_a_collision, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, a_worker_that_never_tells_is_waited_for_as_under_ssp, 0,
                        N_RECORDS);
    tcase_add_loop_test(scenarios, a_worker_that_will_tell_no_more_uses_no_keys, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, the_announcements_of_a_retired_worker_vanish, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, a_get_goes_from_obstacle_to_obstacle, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, a_worker_is_not_held_back_by_itself, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, without_speculation_it_is_ssp, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, announcements_out_of_turn_are_ignored, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, an_announcement_in_pieces_is_one, 0, N_RECORDS);
    tcase_add_loop_test(scenarios, pieces_that_do_not_make_an_announcement_tell_nothing, 0,
                        N_RECORDS * (int)G_N_ELEMENTS(wrong_pieces));
    tcase_add_loop_test(scenarios, announcements_of_any_length_are_found_and_forgotten, 0,
                        4 * N_RECORDS);
    tcase_add_loop_test(scenarios, an_iteration_in_one_tells_its_keys_and_its_clock_and_reads, 0,
                        N_RECORDS);
    tcase_add_test(scenarios, a_dense_record_without_memory_is_an_error);
    suite_add_tcase(suite, scenarios);

    tcase_add_loop_test(record, a_record_finds_what_was_entered_and_not_removed, 0, 4);
    tcase_add_test(record, a_record_refuses_more_uses_than_it_can_hold);
    suite_add_tcase(suite, record);
    return run_suite(suite);
}
