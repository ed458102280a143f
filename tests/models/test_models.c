/* The models: the properties of all models, over every storage and record; then those of each
 * model. SparseSSP's own scenarios are in test_sparse_ssp.c. */
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/shard/shard.h"
#include "tests/support/engine/model_rig.h"
#include "tests/support/runner.h"

#define ANY_CLOCK UINT64_MAX

/* Every combination, and how far ahead of the min clock a Get may be. */
static const struct {
    RubatoTableSpec spec;
    uint64_t bound;
    bool sees_own_adds;
} kinds[] = {
    { { .model = "asp", .storage = "dense" }, ANY_CLOCK, true },
    { { .model = "asp", .storage = "hash" }, ANY_CLOCK, true },
    { { .model = "bsp", .storage = "dense" }, 0, false },
    { { .model = "bsp", .storage = "hash" }, 0, false },
    { { .model = "ssp", .storage = "dense" }, 0, true },
    { { .model = "ssp", .storage = "hash", .staleness = 3 }, 3, true },
    { { .model = "ssp", .storage = "dense", .staleness = UINT32_MAX }, UINT32_MAX, true },
    { { .model = "sparse_ssp", .storage = "dense", .record = "hash", .staleness = 1 }, 1, true },
    { { .model = "sparse_ssp",
        .storage = "dense",
        .record = "dense",
        .staleness = 2,
        .speculation = 2 },
      2,
      true },
    { { .model = "sparse_ssp", .storage = "hash", .record = "hash", .speculation = 1 }, 0, true },
};

#define N_KINDS ((int)G_N_ELEMENTS(kinds))

START_TEST(a_get_at_clock_0_is_answered_at_once)
{
    ModelRig rig;
    RigGet get;

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_get(&rig, &get, 1, 0, NULL, 0);
    ck_assert(get.is_answered);
    ck_assert_int_eq(get.values[0], 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_worker_sees_its_own_adds_except_under_bsp)
{
    ModelRig rig;
    RigGet get;

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_add(&rig, 1, 0, 0, 5);
    rig_get(&rig, &get, 1, 0, NULL, 0);
    ck_assert(get.is_answered);
    ck_assert_int_eq(get.values[0], kinds[_i].sees_own_adds ? 5 : 0);
    rig_clear(&rig);
}
END_TEST

/* Worker 0 stands at 5; worker 1 gets at the bound and one beyond. */
START_TEST(a_get_waits_exactly_when_it_is_beyond_the_bound)
{
    const uint64_t bound = kinds[_i].bound;
    ModelRig rig;
    RigGet at_bound, beyond;

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_clock(&rig, 0, 5);
    if (bound == ANY_CLOCK) {
        rig_clock(&rig, 1, 1000);
        rig_get(&rig, &beyond, 1, 1000, NULL, 0);
        ck_assert(beyond.is_answered);
        rig_clear(&rig);
        return;
    }
    rig_clock(&rig, 1, 5 + bound + 1);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 5);
    rig_get(&rig, &at_bound, 1, 5 + bound, NULL, 0);
    rig_get(&rig, &beyond, 1, 5 + bound + 1, NULL, 0);
    ck_assert(at_bound.is_answered);
    ck_assert(!beyond.is_answered);
    rig_add(&rig, 0, 5, 0, 8);
    ck_assert(!beyond.is_answered);
    rig_clock(&rig, 0, 6);
    ck_assert(beyond.is_answered);
    ck_assert_int_eq(beyond.values[0], 8);
    rig_clear(&rig);
}
END_TEST

START_TEST(retirement_releases_and_loses_no_add)
{
    ModelRig rig;
    RigGet get;

    rig_init(&rig, &kinds[_i].spec, 3);
    rig_add(&rig, 0, 0, 0, 1);
    rig_add(&rig, 2, 0, 0, 10);
    rig_clock(&rig, 1, 9);
    rig_clock(&rig, 2, RUBATO_CLOCK_RETIRED);
    rig_get(&rig, &get, 1, 9, NULL, 0);
    ck_assert(get.is_answered == (kinds[_i].bound >= 9));
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    ck_assert(get.is_answered);
    ck_assert_int_eq(get.values[0], 11);
    rig_add(&rig, 1, 9, 0, 100);
    rig_clock(&rig, 1, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(model_slowest(rig.model), UINT32_MAX);
    ck_assert_int_eq(rig_read(&rig, 0), 111);
    rig_clear(&rig);
}
END_TEST

/* Workers have gone on since they asked: the min clock comes past their Gets, all at once. */
START_TEST(a_clock_releases_all_that_it_passes)
{
    ModelRig rig;
    RigGet gets[3];

    rig_init(&rig, &kinds[_i].spec, 4);
    rig_add(&rig, 0, 0, 0, 5);
    for (uint32_t i = 0; i < 3; i++) {
        rig_get(&rig, &gets[i], i + 1, 7 + i, NULL, 0);
        ck_assert(gets[i].is_answered == (kinds[_i].bound >= 9));
        rig_clock(&rig, i + 1, 20 + i);
    }
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 20);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(gets[i].is_answered);
    ck_assert_int_eq(gets[2].values[0], 5);
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_parked_at_the_end_is_given_back)
{
    ModelRig rig;
    RigGet gets[4];
    const RubatoRequest *dropped;
    unsigned n_parked = 0, n_dropped = 0;

    rig_init(&rig, &kinds[_i].spec, 3);
    if (kinds[_i].bound >= UINT32_MAX) {
        rig_clear(&rig);
        return;
    }
    rig_clock(&rig, 1, 3);
    rig_clock(&rig, 2, 40);
    for (uint64_t i = 0; i < 4; i++) {
        rig_get(&rig, &gets[i], i < 2 ? 1 : 2, i < 2 ? 2 + i : 39 + i, NULL, 0);
        n_parked += !gets[i].is_answered;
    }
    ck_assert_uint_ge(n_parked, 2);
    dropped = model_free(rig.model);
    for (; dropped != NULL; dropped = dropped->next) {
        ck_assert(!((const RigGet *)dropped)->is_answered);
        n_dropped++;
    }
    ck_assert_uint_eq(n_dropped, n_parked);
    shard_free(rig.shard);
}
END_TEST

/* The server asks how much work a clock may release, before a thread that must return soon handles
 * it. */
START_TEST(losses_of_workers_that_are_not_there_change_nothing)
{
    static const struct {
        uint32_t node, first, n;
    } wrong[] = { { 0, 2, 1 },          { 0, 0, 3 },          { 0, 1, 2 }, { 0, 0, 0 },
                  { 0, UINT32_MAX, 1 }, { 0, 1, UINT32_MAX }, { 2, 1, 1 }, { UINT32_MAX, 1, 1 } };
    ModelRig rig;
    ModelLoss loss;

    rig_init(&rig, &kinds[_i].spec, 2);
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        if (wrong[i].node < 2 || !model_traits(&rig.spec)->per_worker_clocks)
            model_lose_workers(rig.model, wrong[i].node, wrong[i].first, wrong[i].n);
    ck_assert(!model_find_loss(rig.model, 0, &loss));
    model_lose_workers(rig.model, 1, 1, 1);
    ck_assert(model_find_loss(rig.model, 0, &loss));
    ck_assert(!model_find_loss(rig.model, 1, &loss));
    rig_clear(&rig);
}
END_TEST

/* Worker 1 has ended clocks 0 and 1. */
START_TEST(what_a_lost_worker_did_not_end_is_told)
{
    static const struct {
        uint32_t worker;
        uint64_t clock;
        bool is_of_lost;
    } kept[] = {
        { 1, 1, false }, { 1, 2, true }, { 1, 3, true }, { 0, 2, false }, { 2, 2, false }
    };
    ModelRig rig;

    rig_init(&rig, &kinds[_i].spec, 3);
    rig_clock(&rig, 1, 2);
    for (size_t i = 0; i < 2 * G_N_ELEMENTS(kept); i++) {
        const size_t at = i % G_N_ELEMENTS(kept);
        const RubatoRequest request = { .worker = kept[at].worker, .clock = kept[at].clock };
        const bool is_known = i >= G_N_ELEMENTS(kept);

        if (i == G_N_ELEMENTS(kept))
            model_lose_workers(rig.model, 1, 1, 1);
        require_msg(rubato_model_is_of_lost(rig.model, &request) ==
                        (is_known && kept[at].is_of_lost),
                    "request %zu", i);
    }
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_held_is_counted)
{
    ModelRig rig;
    RigGet gets[2];
    const RubatoKey keys[] = { 3, 9 };
    const bool keeps_adds = strcmp(kinds[_i].spec.model, "bsp") == 0;
    const bool keeps_announcements = strcmp(kinds[_i].spec.model, "sparse_ssp") == 0;

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_add(&rig, 0, 0, 5, 1);
    ck_assert_uint_eq(model_n_held(rig.model), keeps_adds ? 1 : 0);
    rig_announce(&rig, 0, 0, keys, 2);
    ck_assert_uint_eq(model_n_held(rig.model), keeps_adds ? 1 : keeps_announcements ? 2 : 0);
    rig_clock(&rig, 0, 1);
    ck_assert_uint_eq(model_n_held(rig.model), keeps_adds ? 1 : 0);
    rig_clock(&rig, 0, 40);
    rig_get(&rig, &gets[0], 0, 40, keys, 2);
    rig_get(&rig, &gets[1], 0, 40, keys, 1);
    if (gets[0].is_answered)
        ck_assert_uint_eq(model_n_held(rig.model), 0);
    else
        ck_assert_uint_eq(model_n_held(rig.model), keeps_adds ? 4 : 3);
    rig_clock(&rig, 1, 40);
    ck_assert(gets[0].is_answered && gets[1].is_answered);
    ck_assert_uint_eq(model_n_held(rig.model), 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(old_clocks_and_unknown_sources_change_nothing)
{
    ModelRig rig;

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_clock(&rig, 0, 4);
    rig_clock(&rig, 0, 3);
    rig_clock(&rig, 0, 4);
    rig_clock(&rig, 2, 1);
    rig_clock(&rig, UINT32_MAX, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(rubato_model_clock(rig.model, 0), 4);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 0);
    ck_assert_uint_eq(model_slowest(rig.model), 1);
    ck_assert_uint_eq(model_n_ignored(rig.model), 2);
    rig_clock(&rig, 1, 2);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 2);
    rig_clear(&rig);
}
END_TEST

START_TEST(announcements_come_back_whoever_asks_for_them)
{
    ModelRig rig;
    const RubatoKey keys[] = { 3, 3, 9 };

    rig_init(&rig, &kinds[_i].spec, 2);
    rig_announce(&rig, 0, 0, keys, 3);
    rig_announce(&rig, 0, 1, NULL, 0);
    rig_announce(&rig, 0, RUBATO_CLOCK_RETIRED, NULL, 0);
    rig_announce(&rig, 1, 0, keys, 2);
    rig_clock(&rig, 0, 1);
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    rig_clear(&rig);
}
END_TEST

START_TEST(requests_of_workers_that_are_not_there_make_no_sense)
{
    ModelRig rig;
    const RubatoRequest last = { .worker = 2 };
    const RubatoRequest beyond = { .worker = 3 };

    rig_init(&rig, &kinds[_i].spec, 3);
    ck_assert(model_request_ok(rig.model, &last));
    ck_assert(!model_request_ok(rig.model, &beyond));
    rig_clear(&rig);
}
END_TEST

START_TEST(only_sparse_ssp_has_clocks_of_workers)
{
    ck_assert(model_traits(&kinds[_i].spec)->per_worker_clocks ==
              (strcmp(kinds[_i].spec.model, "sparse_ssp") == 0));
}
END_TEST

/* The other one wants every worker's. */
START_TEST(all_but_sparse_ssp_can_do_without_being_told_each_clock)
{
    ck_assert(model_traits(&kinds[_i].spec)->lazy_clocks ==
              (strcmp(kinds[_i].spec.model, "sparse_ssp") != 0));
}
END_TEST

START_TEST(models_may_share_an_outbox)
{
    const RubatoTableSpec spec = { .model = "ssp" };
    RubatoRequest adds[] = { { .keys = { .first = 1 } }, { .keys = { .first = 2 } } };
    RubatoRequest *outbox = NULL;
    ModelRig rigs[2];

    for (size_t i = 0; i < 2; i++) {
        rig_init(&rigs[i], &spec, 1);
        model_set_outbox(rigs[i].model, &outbox);
    }
    for (size_t i = 0; i < 2; i++) {
        model_add(rigs[i].model, &adds[i]);
        ck_assert_ptr_eq(outbox, &adds[i]);
        ck_assert_ptr_eq(model_take_answered(rigs[i].model), &adds[i]);
        ck_assert_ptr_null(outbox);
    }
    for (size_t i = 0; i < 2; i++)
        rig_clear(&rigs[i]);
}
END_TEST

START_TEST(models_are_known_by_name)
{
    ck_assert_str_eq(model_find("bsp")->name, "bsp");
    ck_assert_ptr_null(model_find("BSP"));
    ck_assert_str_eq(model_name(0), "asp");
    ck_assert_ptr_null(model_name(4));
    ck_assert_ptr_null(model_free(NULL));
}
END_TEST

/* The number of sources is the number of nodes, not of workers. */
START_TEST(sources_are_nodes_unless_the_model_wants_workers)
{
    const RubatoTableSpec spec = { .name = "t", .dtype = RUBATO_I64, .n_keys = 4, .model = "ssp" };
    const RubatoModelSetup setup = { .spec = &spec, .n_workers = 6, .n_keys = 4 };
    RubatoShard *shard = shard_new(&spec, 0, 4, NULL);
    RubatoModel *model = model_new(&setup, shard, 2, NULL);

    model_clock(model, 0, 3);
    model_clock(model, 1, 2);
    model_clock(model, 2, 9);
    ck_assert_uint_eq(rubato_model_min_clock(model), 2);
    ck_assert_uint_eq(model_n_ignored(model), 1);
    ck_assert_ptr_null(model_free(model));
    shard_free(shard);
}
END_TEST

/* SSP */

START_TEST(ssp_releases_gets_in_the_order_of_their_clocks)
{
    const RubatoTableSpec spec = { .model = "ssp" };
    ModelRig rig;
    RigGet gets[3];
    const RubatoRequest *answered;

    rig_init(&rig, &spec, 4);
    for (uint32_t i = 1; i < 4; i++)
        rig_clock(&rig, i, 4 - i);
    for (uint32_t i = 0; i < 3; i++)
        rig_get(&rig, &gets[i], i + 1, 3 - i, NULL, 0);
    model_clock(rig.model, 0, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(rubato_model_min_clock(rig.model), 1);
    answered = model_take_answered(rig.model);
    ck_assert_ptr_eq(answered, &gets[2].request);
    ck_assert_ptr_null(answered->next);
    model_clock(rig.model, 3, RUBATO_CLOCK_RETIRED);
    model_clock(rig.model, 2, RUBATO_CLOCK_RETIRED);
    answered = model_take_answered(rig.model);
    ck_assert_ptr_eq(answered, &gets[1].request);
    ck_assert_ptr_eq(answered->next, &gets[0].request);
    ck_assert_ptr_null(answered->next->next);
    rig_clear(&rig);
}
END_TEST

/* BSP */

START_TEST(bsp_get_sees_exactly_the_adds_of_earlier_clocks)
{
    const RubatoTableSpec spec = { .model = "bsp" };
    ModelRig rig;
    RigGet get;

    rig_init(&rig, &spec, 2);
    rig_add(&rig, 0, 0, 0, 1);
    rig_add(&rig, 1, 0, 0, 10);
    rig_clock(&rig, 0, 1);
    rig_add(&rig, 0, 1, 0, 100);
    rig_get(&rig, &get, 0, 1, NULL, 0);
    ck_assert(!get.is_answered);
    ck_assert_int_eq(rig_read(&rig, 0), 0);
    rig_clock(&rig, 1, 1);
    ck_assert(get.is_answered);
    ck_assert_int_eq(get.values[0], 11);
    rig_clear(&rig);
}
END_TEST

/* Gets of clocks 1, 2 and 3 are parked while Adds of clocks 0 to 3 are kept; then the min clock
 * jumps beyond all of them at once. */
START_TEST(bsp_gets_and_adds_take_turns_when_the_min_clock_jumps)
{
    const RubatoTableSpec spec = { .model = "bsp" };
    ModelRig rig;
    RigGet gets[3];

    rig_init(&rig, &spec, 4);
    for (uint32_t worker = 1; worker < 4; worker++)
        for (uint64_t clock = 0; clock < 4; clock++)
            rig_add(&rig, worker, clock, 0, (int64_t)1 << (8 * clock));
    for (uint32_t i = 0; i < 3; i++) {
        rig_get(&rig, &gets[i], i + 1, i + 1, NULL, 0);
        ck_assert(!gets[i].is_answered);
    }
    for (uint32_t worker = 1; worker < 4; worker++)
        rig_clock(&rig, worker, 5);
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(gets[i].is_answered);
    ck_assert_int_eq(gets[0].values[0], 0x3);
    ck_assert_int_eq(gets[1].values[0], 0x303);
    ck_assert_int_eq(gets[2].values[0], 0x30303);
    ck_assert_int_eq(rig_read(&rig, 0), 0x3030303);
    rig_clear(&rig);
}
END_TEST

/* "assign" keeps the last delta, so it shows the order. */
START_TEST(bsp_applies_the_adds_of_a_clock_in_worker_order)
{
    const RubatoTableSpec spec = { .model = "bsp", .update = "assign" };
    ModelRig rig;

    rig_init(&rig, &spec, 3);
    rig_add(&rig, 2, 0, 0, 20);
    rig_add(&rig, 2, 0, 0, 21);
    rig_add(&rig, 1, 0, 0, 10);
    rig_add(&rig, 0, 1, 1, 1);
    rig_add(&rig, 2, 0, 1, 22);
    rig_add(&rig, 0, 0, 0, 2);
    for (uint32_t worker = 0; worker < 3; worker++)
        rig_clock(&rig, worker, 1);
    ck_assert_int_eq(rig_read(&rig, 0), 21);
    ck_assert_int_eq(rig_read(&rig, 1), 22);
    for (uint32_t worker = 0; worker < 3; worker++)
        rig_clock(&rig, worker, 2);
    ck_assert_int_eq(rig_read(&rig, 1), 1);
    rig_clear(&rig);
}
END_TEST

START_TEST(bsp_drops_the_adds_of_the_unfinished_clock)
{
    const RubatoTableSpec spec = { .model = "bsp" };
    ModelRig rig;

    rig_init(&rig, &spec, 2);
    rig_add(&rig, 0, 0, 0, 1);
    rig_add(&rig, 1, 0, 0, 1);
    rig_clock(&rig, 0, 1);
    rig_clock(&rig, 1, 1);
    rig_add(&rig, 0, 1, 0, 50);
    ck_assert_ptr_null(model_free(rig.model));
    ck_assert_int_eq(rig_read(&rig, 0), 2);
    shard_free(rig.shard);
}
END_TEST

/* A kept Add is a copy, whatever the form of its keys. */
START_TEST(bsp_keeps_lists_selections_and_runs)
{
    const RubatoTableSpec spec = { .model = "bsp" };
    RubatoKey keys[] = { 5, 6, 7 };
    uint32_t at[] = { 2, 0 };
    int64_t deltas[] = { 1, 10, 100 };
    RubatoRequest adds[] = {
        { .keys = { .keys = keys, .n = 3 }, .input = deltas },
        { .keys = { .keys = keys, .at = at, .n = 2 }, .input = deltas },
        { .keys = { .first = 6, .n = 3 }, .input = deltas },
        { .keys = { .first = 6, .n = 0 }, .input = deltas },
    };
    ModelRig rig;

    rig_init(&rig, &spec, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(adds); i++) {
        model_add(rig.model, &adds[i]);
        ck_assert_ptr_eq(model_take_answered(rig.model), &adds[i]);
    }
    memset(keys, 0, sizeof(keys));
    memset(deltas, 0, sizeof(deltas));
    memset(at, 0, sizeof(at));
    ck_assert_int_eq(rig_read(&rig, 5), 0);
    rig_clock(&rig, 0, 1);
    ck_assert_int_eq(rig_read(&rig, 5), 1 + 1);
    ck_assert_int_eq(rig_read(&rig, 6), 10 + 1);
    ck_assert_int_eq(rig_read(&rig, 7), 100 + 100 + 10);
    ck_assert_int_eq(rig_read(&rig, 8), 100);
    ck_assert_int_eq(rig_read(&rig, 0), 0);
    rig_clear(&rig);
}
END_TEST

/* Sums of floats depend on their order; the order of arrival must not show. */
START_TEST(bsp_floats_are_the_same_however_adds_arrive)
{
    const RubatoTableSpec spec = { .name = "t", .dtype = RUBATO_F32, .n_keys = 1, .model = "bsp" };
    const RubatoModelSetup setup = { .spec = &spec, .n_workers = 8, .n_keys = 1 };
    const RubatoKeys key = { .first = 0, .n = 1 };
    GRand *rand = g_rand_new_with_seed(5);
    float first = 0;

    for (int run = 0; run < 50; run++) {
        RubatoShard *shard = shard_new(&spec, 0, 1, NULL);
        RubatoModel *model = model_new(&setup, shard, 1, NULL);
        uint32_t n_sent[8] = { 0 };
        float sum;

        for (int i = 0; i < 40;) {
            const uint32_t worker = (uint32_t)g_rand_int_range(rand, 0, 8);
            const uint32_t turn = n_sent[worker];
            float delta = 1.0f / (float)(1 + worker * 97 + turn * 31);
            RubatoRequest add = { .worker = worker, .keys = key, .input = &delta };

            if (turn == 5)
                continue;
            n_sent[worker]++;
            i++;
            model_add(model, &add);
            model_take_answered(model);
        }
        model_clock(model, 0, 1);
        shard_get(shard, &key, &sum);
        if (run == 0)
            first = sum;
        ck_assert_mem_eq(&sum, &first, sizeof(sum));
        ck_assert_ptr_null(model_free(model));
        shard_free(shard);
    }
    g_rand_free(rand);
}
END_TEST

/* ---- room for rows that go to another node ---- */

static unsigned n_rooms;

static bool make_room(RubatoRequest *request, size_t n_bytes)
{
    ck_assert_uint_eq(n_bytes, request->keys.n * sizeof(int64_t));
    request->output = ((RigGet *)request)->values;
    n_rooms++;
    return true;
}

/* A Get that waits costs its sender a few bytes, so there may be many of them.
 *
 * docs/wire.md: What is guaranteed */
START_TEST(a_get_takes_room_for_its_rows_only_when_they_are_read)
{
    const RubatoKey keys[] = { 3, 1, 2 };
    const bool waits = kinds[_i].bound < 9;
    ModelRig rig;
    RigGet gets[4];

    rig_init(&rig, &kinds[_i].spec, 2);
    rig.model->make_room = make_room;
    rig_add(&rig, 0, 0, 1, 7);
    rig_clock(&rig, 1, 9);
    n_rooms = 0;
    for (unsigned i = 0; i < G_N_ELEMENTS(gets); i++) {
        rig_get(&rig, &gets[i], 1, 9, keys, G_N_ELEMENTS(keys));
        ck_assert_uint_eq(n_rooms, waits ? 0 : i + 1);
    }
    rig_clock(&rig, 0, 9);
    ck_assert_uint_eq(n_rooms, G_N_ELEMENTS(gets));
    for (unsigned i = 0; i < G_N_ELEMENTS(gets); i++) {
        ck_assert(gets[i].is_answered);
        ck_assert_int_eq(gets[i].values[1], 7);
    }
    rig_clear(&rig);
}
END_TEST

/* ---- rows that are lent ---- */

static const void *lent_rows;
static unsigned n_lent;

static bool lend(RubatoRequest *request, const void *rows, size_t n_bytes)
{
    RigGet *const get = (RigGet *)(void *)request;

    n_lent++;
    lent_rows = rows;
    if (rows != NULL) {
        ck_assert_uint_eq(n_bytes, request->keys.n * sizeof get->values[0]);
        request->output = get->values;
        memset(get->values, 0xee, n_bytes);
    }
    return true;
}

/* The answer to the Get that is being handled takes the rows where they lie. If they change before
 * it has left, it gets a copy of what they were; other Gets always do. */
START_TEST(rows_are_lent_only_as_long_as_they_stay_as_they_are)
{
    const RubatoTableSpec spec = { .model = "asp" };
    const RubatoKey list[] = { 2, 3 };
    const int64_t delta = 100;
    ModelRig rig;
    RigGet get = { .request = { .kind = RUBATO_REQUEST_GET, .keys = { .first = 2, .n = 3 } } };
    RigGet other = get;
    RubatoRequest add = { .kind = RUBATO_REQUEST_ADD,
                          .keys = { .first = 3, .n = 1 },
                          .input = &delta };

    rig_init(&rig, &spec, 1);
    rig_add(&rig, 0, 0, 3, 7);
    rig.model->make_room = make_room;
    rig.model->lend = lend;
    rig.model->lends = &get.request;
    n_lent = 0;
    rubato_model_answer(rig.model, &other.request); /* another one */
    ck_assert_uint_eq(n_lent, 0);
    ck_assert_int_eq(other.values[1], 7);
    rubato_model_answer(rig.model, &get.request);
    ck_assert_uint_eq(n_lent, 1);
    ck_assert_int_eq(((const int64_t *)lent_rows)[1], 7);
    ck_assert_ptr_eq(rig.model->lent, &get.request);
    rubato_model_apply(rig.model, &add);
    ck_assert_uint_eq(n_lent, 2);
    ck_assert_ptr_null(lent_rows);
    ck_assert_ptr_null(rig.model->lent);
    ck_assert_int_eq(get.values[1], 7);
    ck_assert_int_eq(rig_read(&rig, 3), 107);
    rubato_model_apply(rig.model, &add);
    ck_assert_uint_eq(n_lent, 2);
    /* rows that do not lie together */
    RigGet listed = { .request = { .kind = RUBATO_REQUEST_GET, .keys = { .keys = list, .n = 2 } } };
    rig.model->lends = &listed.request;
    rubato_model_answer(rig.model, &listed.request);
    ck_assert_uint_eq(n_lent, 2);
    ck_assert_int_eq(listed.values[1], 207);
    rig.model->lends = NULL;
    (void)model_take_answered(rig.model);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models");
    TCase *all = tcase_create("every model");
    TCase *own = tcase_create("one model");

    tcase_add_loop_test(all, a_get_at_clock_0_is_answered_at_once, 0, N_KINDS);
    tcase_add_loop_test(all, a_worker_sees_its_own_adds_except_under_bsp, 0, N_KINDS);
    tcase_add_loop_test(all, a_get_waits_exactly_when_it_is_beyond_the_bound, 0, N_KINDS);
    tcase_add_loop_test(all, retirement_releases_and_loses_no_add, 0, N_KINDS);
    tcase_add_loop_test(all, a_clock_releases_all_that_it_passes, 0, N_KINDS);
    tcase_add_loop_test(all, what_is_parked_at_the_end_is_given_back, 0, N_KINDS);
    tcase_add_loop_test(all, old_clocks_and_unknown_sources_change_nothing, 0, N_KINDS);
    tcase_add_loop_test(all, losses_of_workers_that_are_not_there_change_nothing, 0, N_KINDS);
    tcase_add_loop_test(all, what_a_lost_worker_did_not_end_is_told, 0, N_KINDS);
    tcase_add_loop_test(all, what_is_held_is_counted, 0, N_KINDS);
    tcase_add_loop_test(all, a_get_takes_room_for_its_rows_only_when_they_are_read, 0, N_KINDS);
    tcase_add_loop_test(all, announcements_come_back_whoever_asks_for_them, 0, N_KINDS);
    tcase_add_loop_test(all, requests_of_workers_that_are_not_there_make_no_sense, 0, N_KINDS);
    tcase_add_loop_test(all, only_sparse_ssp_has_clocks_of_workers, 0, N_KINDS);
    tcase_add_loop_test(all, all_but_sparse_ssp_can_do_without_being_told_each_clock, 0, N_KINDS);
    tcase_add_test(all, models_may_share_an_outbox);
    tcase_add_test(all, models_are_known_by_name);
    tcase_add_test(all, rows_are_lent_only_as_long_as_they_stay_as_they_are);
    tcase_add_test(all, sources_are_nodes_unless_the_model_wants_workers);
    suite_add_tcase(suite, all);

    tcase_add_test(own, ssp_releases_gets_in_the_order_of_their_clocks);
    tcase_add_test(own, bsp_get_sees_exactly_the_adds_of_earlier_clocks);
    tcase_add_test(own, bsp_gets_and_adds_take_turns_when_the_min_clock_jumps);
    tcase_add_test(own, bsp_applies_the_adds_of_a_clock_in_worker_order);
    tcase_add_test(own, bsp_drops_the_adds_of_the_unfinished_clock);
    tcase_add_test(own, bsp_keeps_lists_selections_and_runs);
    tcase_add_test(own, bsp_floats_are_the_same_however_adds_arrive);
    suite_add_tcase(suite, own);
    return run_suite(suite);
}
