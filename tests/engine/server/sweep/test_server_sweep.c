/* Slices of sweeps: where they end, and where the next one begins. There are no threads: the test
 * handles each message itself, as the owner. */
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

int main(void)
{
    Suite *const suite = suite_create("server: sweep");
    TCase *const cases = tcase_create("sweep");

    tcase_add_test(cases, a_slice_of_a_sweep_may_end_after_any_part);
    tcase_add_test(cases, slices_of_sweeps_go_around_all_tables);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
