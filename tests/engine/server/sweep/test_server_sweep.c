/* Slices of sweeps: where they end, and where the next one begins. There are no threads: the test
 * handles each message itself, as the owner. */
#include <rubato/plugin.h>
#include <string.h>

#include "engine/server/server.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/runner.h"

/* The server of the only node. */
typedef struct {
    PostOffice office;
    Server server;
} Rig;

static void rig_init(Rig *rig)
{
    static const uint32_t ids[] = { 0 }, servers_of[] = { 1 };

    memset(rig, 0, sizeof *rig);
    post_office_init(&rig->office, 0, 1, ids, servers_of, &FLOW_SIZES_USUAL);
    server_init(&rig->server, 0, &rig->office, NULL, NULL);
    rig->office.servers[0].actor = &rig->server.actor;
}

static void end(Server *server, void *epoch)
{
    server_end_task(server, *(const uint32_t *)epoch);
}

static void rig_clear(Rig *rig)
{
    uint32_t epoch = 1;

    servers_run(&rig->server, 1, end, &epoch);
    server_clear(&rig->server);
    post_office_clear(&rig->office);
}

enum { EXPIRING, CLICKS, SWEPT_PARTS = 20, SWEPT_KEYS = 20000 };

static const RubatoTableSpec expiring = {
    .name = "expiring", .storage = "hash", .model = "asp", .expire = "clocks", .expire_after = 2
};

/* Its rows stay, and each clock brings a new sweep. */
static const RubatoTableSpec clicks = { .name = "clicks",
                                        .storage = "hash",
                                        .model = "asp",
                                        .width = 2,
                                        .expire = "score",
                                        .expire_below = 1,
                                        .expire_decay = 0.9999 };

/* Adds a table of which each part has the keys from 1 to n, and begins a task on it. */
static void add_expiring(Rig *rig, uint32_t table, const RubatoTableSpec *spec, uint32_t n_parts,
                         size_t n)
{
    static const uint32_t workers_of[] = { 1 };
    const RubatoModelSetup setup = { .spec = spec, .n_workers = 1 };
    g_autofree float *rows = g_new(float, 2 * n);

    for (size_t i = 0; i < 2 * n; i++)
        rows[i] = 9;
    ck_assert(spec_check(spec, NULL));
    server_add_table(&rig->server, table, n_parts);
    for (uint32_t part = 0; part < n_parts; part++) {
        RubatoShard *shard = shard_new(spec, 0, UINT64_MAX, NULL);

        shard_set(shard, &(RubatoKeys){ .first = 1, .n = n }, rows);
        server_add_shard(&rig->server, table, part, shard);
    }
    ck_assert(server_begin_task(&rig->server, 1, table, &setup, 1, workers_of, NULL));
}

static uint64_t count_expired(const Rig *rig, uint32_t table)
{
    RubatoTableStats stats = { 0 };

    server_sum_table(&rig->server, table, &stats);
    return stats.n_expired;
}

static void run_slice(Server *server, void *goes_on)
{
    *(bool *)goes_on = server_sweep(server, 0, /* most_us= */ 0);
}

/* The shortest slice. Returns whether more is to be done. */
static bool sweep_a_slice(Rig *rig)
{
    bool goes_on;

    servers_run(&rig->server, 1, run_slice, &goes_on);
    return goes_on;
}

START_TEST(a_slice_of_a_sweep_may_end_after_any_part)
{
    uint32_t n_slices = 1;
    Rig rig;

    rig_init(&rig);
    add_expiring(&rig, EXPIRING, &expiring, SWEPT_PARTS, 1);
    for (uint32_t part = 0; part < SWEPT_PARTS; part++)
        shard_pass_time(server_find_shard(&rig.server, EXPIRING, part), 2);
    ck_assert(sweep_a_slice(&rig));
    ck_assert_uint_le(count_expired(&rig, EXPIRING), 1);
    while (count_expired(&rig, EXPIRING) < SWEPT_PARTS && n_slices++ < 100 * SWEPT_PARTS)
        (void)sweep_a_slice(&rig);
    ck_assert_uint_eq(count_expired(&rig, EXPIRING), SWEPT_PARTS);
    rig_clear(&rig);
}
END_TEST

/* A clock passes with each slice. */
START_TEST(slices_of_sweeps_go_around_all_tables)
{
    uint32_t n_slices = 0;
    Rig rig;

    rig_init(&rig);
    add_expiring(&rig, CLICKS, &clicks, 1, SWEPT_KEYS);
    add_expiring(&rig, EXPIRING, &expiring, 1, SWEPT_KEYS);
    shard_pass_time(server_find_shard(&rig.server, EXPIRING, 0), 2);
    while (count_expired(&rig, EXPIRING) < SWEPT_KEYS && n_slices++ < SWEPT_KEYS / 20) {
        shard_pass_time(server_find_shard(&rig.server, EXPIRING, 0), 1);
        shard_pass_time(server_find_shard(&rig.server, CLICKS, 0), 1);
        (void)sweep_a_slice(&rig);
    }
    ck_assert_uint_eq(count_expired(&rig, EXPIRING), SWEPT_KEYS);
    ck_assert_uint_eq(count_expired(&rig, CLICKS), 0);
    rig_clear(&rig);
}
END_TEST

/* ---- how long a slice takes ---- */

/* The time is what looks cost: it passes in the function that says which rows expire. */
static int64_t now_ns;
static int64_t cost_ns;
static uint64_t n_looks;

static int64_t read_time_us(void)
{
    return now_ns / 1000;
}

static bool expires_at_a_cost(const RubatoTableSpec *spec, RubatoKey key, const void *values,
                              uint32_t age)
{
    (void)spec;
    (void)values;
    now_ns += cost_ns;
    n_looks++;
    return age > 0 && key % 2 == 0;
}

static const RubatoExpiryOps costly_expiry = { .name = "costly", .expires = expires_at_a_cost };

static const RubatoTableSpec costly = {
    .name = "costly", .storage = "hash", .model = "asp", .expire = "costly", .expire_after = 1
};

enum { SLICE_US = 800, COSTLY_KEYS = 50000 };

static void run_costly_slice(Server *server, void *goes_on)
{
    *(bool *)goes_on = server_sweep(server, 0, SLICE_US);
}

/* From what costs next to nothing to a function that takes 20 microseconds. */
static const int64_t costs_ns[] = { 20, 100, 1000, 5000, 20000 };

START_TEST(no_slice_takes_more_than_a_millisecond_whatever_a_look_costs)
{
    uint64_t n_slices = 0, most_looks = 0;
    bool goes_on = true;
    Rig rig;

    ck_assert(rubato_register_expiry(&costly_expiry, NULL));
    rig_init(&rig);
    rig.server.sweeps.now_us = read_time_us;
    cost_ns = 0;
    add_expiring(&rig, CLICKS, &costly, 2, COSTLY_KEYS);
    cost_ns = costs_ns[_i];
    for (uint32_t part = 0; part < 2; part++)
        shard_pass_time(server_find_shard(&rig.server, CLICKS, part), 1);
    for (n_looks = 0; goes_on; n_slices++) {
        const int64_t before_ns = now_ns;
        const uint64_t n_before = n_looks;

        servers_run(&rig.server, 1, run_costly_slice, &goes_on);
        require_msg(now_ns - before_ns <= 1000000, "slice %" G_GUINT64_FORMAT " took %g us",
                    n_slices, (double)(now_ns - before_ns) / 1e3);
        most_looks = MAX(most_looks, n_looks - n_before);
    }
    ck_assert_uint_eq(count_expired(&rig, CLICKS), COSTLY_KEYS);
    ck_assert_uint_ge(n_looks, 2 * COSTLY_KEYS);
    /* and no slice is much shorter than it may be: so many looks fit into it */
    ck_assert_uint_le(n_slices,
                      2 + (uint64_t)((double)n_looks * (double)cost_ns / 1e3 / SLICE_US * 1.01));
    ck_assert_uint_le(most_looks, (uint64_t)(1000000 / cost_ns));
    rig_clear(&rig);
}
END_TEST

/* A table whose looks are cheap is followed by one whose looks are not. */
START_TEST(a_slice_takes_the_first_looks_at_a_part_with_care)
{
    bool goes_on = true;
    int64_t longest_ns = 0;
    Rig rig;

    ck_assert(rubato_register_expiry(&costly_expiry, NULL));
    rig_init(&rig);
    rig.server.sweeps.now_us = read_time_us;
    cost_ns = 0;
    add_expiring(&rig, EXPIRING, &expiring, 1, SWEPT_KEYS);
    add_expiring(&rig, CLICKS, &costly, 2, SWEPT_KEYS);
    cost_ns = 20000;
    shard_pass_time(server_find_shard(&rig.server, EXPIRING, 0), 2);
    for (uint32_t part = 0; part < 2; part++)
        shard_pass_time(server_find_shard(&rig.server, CLICKS, part), 1);
    while (goes_on) {
        const int64_t before_ns = now_ns;

        servers_run(&rig.server, 1, run_costly_slice, &goes_on);
        longest_ns = MAX(longest_ns, now_ns - before_ns);
    }
    ck_assert_int_le(longest_ns, 1000000);
    ck_assert_uint_eq(count_expired(&rig, EXPIRING), SWEPT_KEYS);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server: sweep");
    TCase *const cases = tcase_create("sweep");

    tcase_add_test(cases, a_slice_of_a_sweep_may_end_after_any_part);
    tcase_add_test(cases, slices_of_sweeps_go_around_all_tables);
    tcase_add_loop_test(cases, no_slice_takes_more_than_a_millisecond_whatever_a_look_costs, 0,
                        G_N_ELEMENTS(costs_ns));
    tcase_add_test(cases, a_slice_takes_the_first_looks_at_a_part_with_care);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
