/* Where the parts of tables are laid: no server is above its limits, what fits nowhere is refused
 * with the sums, and each strategy does what it says. */
#include <rubato/error.h>
#include <string.h>

#include "engine/placement/placement.h"
#include "tests/support/runner.h"

#define UNLIMITED                                                         \
    {                                                                     \
        {                                                                 \
            PLACEMENT_UNLIMITED, PLACEMENT_UNLIMITED, PLACEMENT_UNLIMITED \
        }                                                                 \
    }

enum { MOST_SERVERS = 9, MOST_PARTS = 24, MOST_COPIES = 3, N_SEEDS = 1000 };

/* A random cluster and a table for it. Small numbers, so that many of them barely fit. */
typedef struct {
    PlacementServer servers[MOST_SERVERS], before[MOST_SERVERS];
    PlacementLoad parts[MOST_PARTS];
    uint32_t places[MOST_PARTS * MOST_COPIES];
    uint32_t n_servers;
    bool equal_parts;
    PlacementRequest request;
} Trial;

static uint64_t draw(GRand *rand, uint32_t most)
{
    return (uint64_t)g_rand_int_range(rand, 0, (gint32)most + 1);
}

static void draw_trial(Trial *trial, uint32_t seed)
{
    GRand *rand = g_rand_new_with_seed(seed);
    const bool has_limits = draw(rand, 3) > 0;

    *trial = (Trial){ .n_servers = 1 + (uint32_t)draw(rand, MOST_SERVERS - 1),
                      .equal_parts = draw(rand, 1) > 0 };
    for (uint32_t i = 0; i < trial->n_servers; i++) {
        PlacementServer *const server = &trial->servers[i];

        server->number = 10 + i;
        server->node = i / 2;
        server->n_parts = (uint32_t)draw(rand, 5);
        server->n_here = server->n_primaries = 77; /* placement_lay counts anew */
        for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++) {
            server->limit.of[r] =
                has_limits && draw(rand, 3) > 0 ? draw(rand, 60) : PLACEMENT_UNLIMITED;
            server->used.of[r] = draw(rand, 20);
            server->used.of[r] = MIN(server->used.of[r], server->limit.of[r]);
        }
    }
    trial->request = (PlacementRequest){ .table = "w",
                                         .parts = trial->parts,
                                         .n_parts = 1 + (uint32_t)draw(rand, MOST_PARTS - 1),
                                         .no_split = draw(rand, 4) == 0 };
    if (draw(rand, 2) == 0)
        trial->request.n_replicas = (uint32_t)draw(rand, MOST_COPIES - 1);
    if (draw(rand, 2) == 0 && !trial->request.no_split)
        trial->request.most_parts = 1 + (uint32_t)draw(rand, 5);
    for (uint32_t part = 0; part < trial->request.n_parts; part++)
        for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++)
            trial->parts[part].of[r] =
                trial->equal_parts && part > 0 ? trial->parts[0].of[r] : draw(rand, 15);
    memcpy(trial->before, trial->servers, sizeof trial->servers);
    g_rand_free(rand);
}

static bool has_same_sums(const PlacementServer *a, const PlacementServer *b)
{
    return memcmp(&a->used, &b->used, sizeof a->used) == 0 && a->n_parts == b->n_parts &&
           a->n_here == b->n_here && a->n_primaries == b->n_primaries;
}

/* The servers have what they had and what was laid on them, and are not above a limit. */
static void expect_sums(const Trial *trial, uint32_t seed)
{
    const uint32_t copies = 1 + trial->request.n_replicas;

    for (uint32_t i = 0; i < trial->n_servers; i++) {
        PlacementServer expected = trial->before[i];

        expected.n_here = expected.n_primaries = 0;
        for (uint32_t at = 0; at < trial->request.n_parts * copies; at++) {
            if (trial->places[at] != i)
                continue;
            placement_add(&expected.used, &trial->parts[at / copies]);
            expected.n_parts++;
            expected.n_here++;
            expected.n_primaries += at % copies == 0;
        }
        ck_assert_msg(has_same_sums(&expected, &trial->servers[i]),
                      "seed %u: server %u has other sums", seed, i);
        for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++)
            ck_assert_msg(expected.used.of[r] <= expected.limit.of[r],
                          "seed %u: server %u is above its limit", seed, i);
        ck_assert_msg(trial->request.most_parts == 0 ||
                          expected.n_primaries <= trial->request.most_parts,
                      "seed %u: server %u has too many parts", seed, i);
    }
}

static void expect_places(const Trial *trial, uint32_t seed)
{
    const uint32_t copies = 1 + trial->request.n_replicas;

    for (uint32_t part = 0; part < trial->request.n_parts; part++) {
        const uint32_t *const places = trial->places + (size_t)part * copies;

        for (uint32_t k = 0; k < copies; k++) {
            ck_assert_msg(places[k] < trial->n_servers, "seed %u: part %u", seed, part);
            for (uint32_t i = 0; i < k; i++)
                ck_assert_msg(trial->before[places[i]].node != trial->before[places[k]].node,
                              "seed %u: two copies of part %u are on one node", seed, part);
            ck_assert_msg(!trial->request.no_split || places[k] == trial->places[k],
                          "seed %u: part %u is elsewhere than part 0", seed, part);
        }
    }
}

/* How many parts of that size the servers have room for. */
static uint64_t count_room(const Trial *trial, const PlacementLoad *need)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < trial->n_servers; i++) {
        const uint32_t most = trial->request.most_parts;
        PlacementServer server = trial->before[i];
        uint32_t own = 0;

        while (own < MOST_PARTS && (most == 0 || own < most) && placement_has_room(&server, need)) {
            placement_add(&server.used, need);
            own++;
        }
        n += own;
    }
    return n;
}

START_TEST(random_tables_are_laid_within_limits_or_refused_for_a_reason)
{
    const PlacementOps *const strategy = placement_find(placement_name((size_t)_i));
    uint32_t n_laid = 0;

    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        g_autoptr(GError) error = NULL;
        Trial trial;
        PlacementLoad whole = { { 0 } };

        draw_trial(&trial, seed);
        for (uint32_t part = 0; part < trial.request.n_parts; part++)
            placement_add(&whole, &trial.parts[part]);
        if (placement_lay(strategy, trial.servers, trial.n_servers, &trial.request, trial.places,
                          &error)) {
            n_laid++;
            expect_places(&trial, seed);
            expect_sums(&trial, seed);
            continue;
        }
        ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID), "seed %u", seed);
        ck_assert_msg(memcmp(trial.before, trial.servers, sizeof trial.before) == 0,
                      "seed %u: a refused table has changed the servers", seed);
        if (trial.request.n_replicas > 0)
            continue;
        if (trial.request.no_split)
            ck_assert_msg(count_room(&trial, &whole) == 0, "seed %u: one server has room", seed);
        else if (trial.equal_parts)
            ck_assert_msg(count_room(&trial, &trial.parts[0]) < trial.request.n_parts,
                          "seed %u: there is room: %s", seed, error->message);
    }
    ck_assert_uint_gt(n_laid, N_SEEDS / 4);
    ck_assert_uint_lt(n_laid, N_SEEDS * 3 / 4);
}
END_TEST

static PlacementServer server_of(uint32_t number, uint64_t memory)
{
    PlacementServer server = { .number = number, .node = number, .limit = UNLIMITED };

    server.limit.of[PLACEMENT_MEMORY] = memory;
    return server;
}

START_TEST(even_without_limits_takes_the_servers_in_turn)
{
    const PlacementServer server = { .limit = UNLIMITED };
    PlacementServer servers[3] = { server, server, server };
    const PlacementLoad parts[7] = { { { 9 } }, { { 1 } }, { { 50 } } };
    const PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 7 };
    uint32_t places[7];

    ck_assert(placement_lay(placement_find("even"), servers, 3, &request, places, NULL));
    for (uint32_t part = 0; part < 7; part++)
        ck_assert_uint_eq(places[part], part % 3);
}
END_TEST

/* Also if the next server has the replicas. */
START_TEST(even_takes_the_servers_in_turn_whatever_replicas_they_have)
{
    PlacementServer servers[4] = { server_of(0, PLACEMENT_UNLIMITED),
                                   server_of(1, PLACEMENT_UNLIMITED),
                                   server_of(2, PLACEMENT_UNLIMITED),
                                   server_of(3, PLACEMENT_UNLIMITED) };
    const PlacementLoad parts[8] = { { { 1 } } };
    const PlacementRequest request = {
        .table = "w", .parts = parts, .n_parts = 8, .n_replicas = 1
    };
    uint32_t places[16];

    servers[3].node = servers[2].node;
    ck_assert(placement_lay(placement_find("even"), servers, 4, &request, places, NULL));
    for (uint32_t part = 0; part < 8; part++)
        ck_assert_uint_eq(places[2 * part], part % 4);
    ck_assert_uint_eq(places[2 * 1 + 1], 2);
    ck_assert_uint_eq(places[2 * 2 + 1], 0); /* server 3 is on the same node */
}
END_TEST

START_TEST(balance_gives_the_larger_server_more)
{
    PlacementServer servers[2] = { server_of(0, 100), server_of(1, 300) };
    const PlacementLoad part = { { 10 } };
    const PlacementLoad parts[8] = { part, part, part, part, part, part, part, part };
    const PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 8 };
    uint32_t places[8];

    ck_assert(placement_lay(placement_find("balance"), servers, 2, &request, places, NULL));
    ck_assert_uint_eq(servers[0].used.of[PLACEMENT_MEMORY], 20);
    ck_assert_uint_eq(servers[1].used.of[PLACEMENT_MEMORY], 60);
}
END_TEST

/* Without limits a server's share of the total counts. */
START_TEST(balance_without_limits_lays_the_largest_part_first)
{
    PlacementServer servers[2] = { { .limit = UNLIMITED }, { .limit = UNLIMITED } };
    const PlacementLoad parts[4] = { { { 10 } }, { { 20 } }, { { 30 } }, { { 60 } } };
    const PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 4 };
    uint32_t places[4];

    ck_assert(placement_lay(placement_find("balance"), servers, 2, &request, places, NULL));
    ck_assert_uint_eq(servers[places[3]].used.of[PLACEMENT_MEMORY], 60);
    ck_assert_uint_eq(servers[places[0]].used.of[PLACEMENT_MEMORY], 60);
    ck_assert_uint_ne(places[0], places[3]);
}
END_TEST

/* Parts of other tables count, too. */
START_TEST(balance_of_what_is_not_known_gives_all_servers_equally_many_parts)
{
    PlacementServer servers[3] = { { .limit = UNLIMITED, .n_parts = 3 },
                                   { .limit = UNLIMITED },
                                   { .limit = UNLIMITED, .n_parts = 1 } };
    const PlacementLoad parts[5] = { { { 0 } } };
    const PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 5 };
    uint32_t places[5];

    ck_assert(placement_lay(placement_find("balance"), servers, 3, &request, places, NULL));
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(servers[i].n_parts, 3);
}
END_TEST

/* 3, 3, 2, 2, 2 in two servers of 6: the least full server first would put 3 and 3 apart. */
START_TEST(parts_that_the_strategy_cannot_lay_are_tried_on_the_fullest_server)
{
    PlacementServer servers[2] = { server_of(0, 6), server_of(1, 6) };
    const PlacementLoad parts[5] = { { { 3 } }, { { 3 } }, { { 2 } }, { { 2 } }, { { 2 } } };
    const PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 5 };
    uint32_t places[5];

    ck_assert(placement_lay(placement_find("balance"), servers, 2, &request, places, NULL));
    ck_assert_uint_eq(servers[0].used.of[PLACEMENT_MEMORY], 6);
    ck_assert_uint_eq(servers[1].used.of[PLACEMENT_MEMORY], 6);
}
END_TEST

#define MIB (UINT64_C(1) << 20)

static void expect_refusal(const PlacementServer *servers, uint32_t n,
                           const PlacementRequest *request, const char *message)
{
    g_autofree PlacementServer *copy = g_memdup2(servers, n * sizeof *servers);
    g_autofree uint32_t *places = g_new(uint32_t, request->n_parts * (1 + request->n_replicas));
    g_autoptr(GError) error = NULL;

    ck_assert(!placement_lay(placement_find("even"), copy, n, request, places, &error));
    ck_assert_str_eq(error->message, message);
}

START_TEST(what_fits_nowhere_is_refused_with_the_sums)
{
    PlacementServer servers[2] = { server_of(0, 100 * MIB), server_of(1, 200 * MIB) };
    const PlacementLoad parts[2] = { { { 160 * MIB, 7 } }, { { 160 * MIB, 7 } } };
    PlacementRequest request = { .table = "w", .parts = parts, .n_parts = 2 };

    servers[1].used.of[PLACEMENT_MEMORY] = 10 * MIB;
    expect_refusal(servers, 2, &request,
                   "table w: part 1 of 2 fits on no server; memory: it needs 160.0 MiB of the "
                   "table's 320.0 MiB, and servers have 290.0 MiB left of 300.0 MiB, server 1 most "
                   "of them with 190.0 MiB; raise the limits in the cluster file, or add servers");
    servers[0].limit.of[PLACEMENT_MEMORY] = 150 * MIB;
    expect_refusal(servers, 2, &request,
                   "table w: part 1 of 2 fits on no server; memory: it needs 160.0 MiB of the "
                   "table's 320.0 MiB, and servers have 340.0 MiB left of 350.0 MiB, server 1 most "
                   "of them with 190.0 MiB; cut the table into more parts, or raise the limits in "
                   "the cluster file");
    request.no_split = true;
    expect_refusal(servers, 2, &request,
                   "table w: it fits on no server as a whole, as no_split wants it; memory: it "
                   "needs 320.0 MiB of the table's 320.0 MiB, and servers have 340.0 MiB left of "
                   "350.0 MiB, server 1 most of them with 190.0 MiB; leave out no_split, or raise "
                   "the limits in the cluster file");
}
END_TEST

START_TEST(what_a_server_has_is_told_with_its_limits)
{
    PlacementServer server = server_of(0, 100 * MIB);
    g_autofree char *empty = placement_server_text(&server);
    g_autofree char *load = NULL;
    g_autofree char *text = NULL;

    ck_assert_str_eq(empty, "memory 0.0 MiB of 100.0 MiB (0 %)");
    server.used = (PlacementLoad){ { 25 * MIB, MIB / 2, 800 } };
    server.limit.of[PLACEMENT_QUERIES] = 1000;
    text = placement_server_text(&server);
    ck_assert_str_eq(text,
                     "memory 25.0 MiB of 100.0 MiB (25 %), network 0.5 MiB/s, queries 800/s of "
                     "1000/s (80 %)");
    load = placement_load_text(&server.used);
    ck_assert_str_eq(load, "memory 25.0 MiB, network 0.5 MiB/s, queries 800/s");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("laying");
    int n_strategies = 0;

    while (placement_name((size_t)n_strategies) != NULL)
        n_strategies++;
    tcase_add_loop_test(tcase, random_tables_are_laid_within_limits_or_refused_for_a_reason, 0,
                        n_strategies);
    tcase_add_test(tcase, even_without_limits_takes_the_servers_in_turn);
    tcase_add_test(tcase, even_takes_the_servers_in_turn_whatever_replicas_they_have);
    tcase_add_test(tcase, balance_gives_the_larger_server_more);
    tcase_add_test(tcase, balance_without_limits_lays_the_largest_part_first);
    tcase_add_test(tcase, balance_of_what_is_not_known_gives_all_servers_equally_many_parts);
    tcase_add_test(tcase, parts_that_the_strategy_cannot_lay_are_tried_on_the_fullest_server);
    tcase_add_test(tcase, what_fits_nowhere_is_refused_with_the_sums);
    tcase_add_test(tcase, what_a_server_has_is_told_with_its_limits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
