/* The roster of a run without a cluster file: who gets which id, who is refused, who is
 * forgotten. */
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/scheduler/rendezvous/roster.h"
#include "tests/support/runner.h"

enum { VERSION = 4, TIMEOUT_MS = 1000 };

static const RosterConfig CONFIG = { .n_servers = 2,
                                     .n_workers = 1,
                                     .host = "10.0.0.1",
                                     .port = 4100,
                                     .settings = "timeout_ms = 9000; name = \"announced\";",
                                     .wire_version = VERSION,
                                     .timeout_ms = TIMEOUT_MS };

static Control answer;
static const bool *is_lost; /* by id; NULL: nobody's place is taken */

/* What process `incarnation` is answered. */
static const Control *hear_at(Roster *roster, int64_t now_ms, uint64_t incarnation,
                              ControlRole role, uint32_t wanted_id)
{
    g_autofree char *host = g_strdup_printf("10.0.0.%u", (unsigned)incarnation);
    g_autofree char *description = g_strdup_printf("process %u", (unsigned)incarnation);
    const uint32_t threads = (uint32_t)incarnation % 7 + 1;
    const ControlAnnounce announce = { .incarnation = incarnation,
                                       .role = role,
                                       .servers = role != CONTROL_ROLE_WORKER ? threads : 0,
                                       .workers = role != CONTROL_ROLE_SERVER ? threads : 0,
                                       .wanted_id = wanted_id,
                                       .host = host,
                                       .description = description };

    if (is_lost == NULL ||
        !roster_replace(roster, now_ms, &announce, VERSION, incarnation + 1000, is_lost, &answer))
        roster_hear(roster, now_ms, &announce, VERSION, incarnation + 1000, &answer);
    return &answer;
}

static const Control *hear(Roster *roster, uint64_t incarnation, ControlRole role, uint32_t id)
{
    return hear_at(roster, 0, incarnation, role, id);
}

static void expect_wait(const Control *control, const char *missing)
{
    ck_assert_int_eq(control->kind, CONTROL_PLACE);
    ck_assert_uint_eq(control->place.node_id, 0);
    ck_assert_str_eq(control->place.missing, missing);
}

static void expect_id(const Control *control, uint32_t id)
{
    ck_assert_int_eq(control->kind, CONTROL_PLACE);
    ck_assert_uint_eq(control->place.node_id, id);
}

static void expect_refused(const Control *control, const char *text)
{
    ck_assert_int_eq(control->kind, CONTROL_REFUSE);
    ck_assert_uint_ne(control->refuse.code, CONTROL_OK);
    ck_assert_msg(strstr(control->refuse.text, text) != NULL, "%s", control->refuse.text);
}

START_TEST(roster_gives_servers_the_first_ids)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    expect_wait(hear(roster, 8, CONTROL_ROLE_WORKER, 0),
                "0 of 2 servers and 1 of 1 workers are here");
    expect_wait(hear(roster, 9, CONTROL_ROLE_SERVER, 0),
                "1 of 2 servers and 1 of 1 workers are here");
    ck_assert(!roster_is_full(roster));
    hear(roster, 7, CONTROL_ROLE_SERVER, 0);
    ck_assert(roster_is_full(roster));
    expect_id(hear(roster, 7, CONTROL_ROLE_SERVER, 0), 0); /* it is not open yet */
    roster_open(roster);
    expect_id(hear(roster, 7, CONTROL_ROLE_SERVER, 0), 2);
    expect_id(hear(roster, 9, CONTROL_ROLE_SERVER, 0), 1);
    expect_id(hear(roster, 8, CONTROL_ROLE_WORKER, 0), 3);
}
END_TEST

START_TEST(roster_describes_the_run_as_a_cluster_file)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);
    g_autoptr(GError) error = NULL;

    hear(roster, 8, CONTROL_ROLE_WORKER, 0);
    hear(roster, 9, CONTROL_ROLE_SERVER, 0);
    ck_assert_ptr_null(roster_file(roster));
    hear(roster, 7, CONTROL_ROLE_SERVER, 0);
    const char *const file = roster_file(roster);
    g_autoptr(Cluster) cluster = cluster_parse(file, strlen(file), "it", &error);
    ck_assert_msg(cluster != NULL, "%s: %s", error != NULL ? error->message : "", file);
    ck_assert_str_eq(cluster->name, "announced");
    ck_assert_uint_eq(cluster->timeout_ms, 9000);
    ck_assert_str_eq(cluster->scheduler_host, "10.0.0.1");
    ck_assert_uint_eq(cluster->scheduler_port, 4100);
    ck_assert_uint_eq(cluster->n_nodes, 4);
    ck_assert_uint_eq(cluster->nodes[0].servers + cluster->nodes[0].workers, 0);
    ck_assert_str_eq(cluster->nodes[1].host, "10.0.0.9");
    ck_assert_uint_eq(cluster->nodes[1].servers, 3);
    ck_assert_uint_eq(cluster->nodes[1].workers, 0);
    ck_assert_str_eq(cluster->nodes[3].host, "10.0.0.8");
    ck_assert_uint_eq(cluster->nodes[3].workers, 2);
}
END_TEST

START_TEST(roster_gives_wanted_ids)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    hear(roster, 1, CONTROL_ROLE_WORKER, 1);
    hear(roster, 2, CONTROL_ROLE_SERVER, 0);
    hear(roster, 3, CONTROL_ROLE_SERVER, 2);
    roster_open(roster);
    expect_id(hear(roster, 1, CONTROL_ROLE_WORKER, 1), 1);
    expect_id(hear(roster, 2, CONTROL_ROLE_SERVER, 0), 3);
    expect_id(hear(roster, 3, CONTROL_ROLE_SERVER, 2), 2);
}
END_TEST

START_TEST(roster_refuses_who_comes_twice_or_too_much)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    hear(roster, 1, CONTROL_ROLE_WORKER, 2);
    expect_refused(hear(roster, 2, CONTROL_ROLE_SERVER, 2),
                   "node 2 was started twice: process 1 is in the run, process 2 came later");
    expect_refused(hear(roster, 3, CONTROL_ROLE_WORKER, 0),
                   "waits for 1 workers (RUBATO_WORKERS), and so many are here (process 1): the "
                   "worker (process 3) is one too many");
    expect_refused(hear(roster, 4, CONTROL_ROLE_SERVER, 4), "the nodes of this run are 1 to 3");
    expect_wait(hear(roster, 1, CONTROL_ROLE_WORKER, 2),
                "0 of 2 servers and 1 of 1 workers are here");
    hear(roster, 5, CONTROL_ROLE_SERVER, 0);
    hear(roster, 6, CONTROL_ROLE_SERVER, 0);
    roster_open(roster);
    expect_refused(hear(roster, 7, CONTROL_ROLE_SERVER, 0), "is one too many");
    expect_id(hear(roster, 6, CONTROL_ROLE_SERVER, 0), 3);
}
END_TEST

static void expect_lost_place(const Control *control, uint32_t id)
{
    expect_id(control, id);
    ck_assert(control->place.joins);
    ck_assert_str_ne(control->place.file, "");
}

/* Nodes 1 and 2 are servers, node 3 is a worker. */
START_TEST(roster_gives_the_places_of_lost_nodes_to_others)
{
    static const bool first[] = { false, true, false, true }, both[] = { false, true, true, true };
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    for (uint64_t i = 1; i <= 3; i++)
        hear(roster, i, i < 3 ? CONTROL_ROLE_SERVER : CONTROL_ROLE_WORKER, 0);
    roster_open(roster);
    g_autofree char *file = g_strdup(roster_file(roster));
    expect_refused(hear_at(roster, 500, 4, CONTROL_ROLE_SERVER, 0), "is one too many");
    is_lost = first;
    expect_refused(hear_at(roster, 1000, 4, CONTROL_ROLE_SERVER, 2), "was started twice");
    expect_lost_place(hear_at(roster, 1000, 5, CONTROL_ROLE_WORKER, 0), 3);
    expect_lost_place(hear_at(roster, 1000, 6, CONTROL_ROLE_SERVER, 0), 1);
    expect_lost_place(hear_at(roster, 1200, 6, CONTROL_ROLE_SERVER, 0), 1); /* it asks again */
    ck_assert_str_eq(answer.place.file, file);
    expect_wait(hear_at(roster, 1300, 7, CONTROL_ROLE_SERVER, 0),
                "another process has come for the place of the lost node");
    is_lost = both;
    expect_lost_place(hear_at(roster, 1400, 7, CONTROL_ROLE_SERVER, 0), 2);
    expect_wait(hear_at(roster, 1500, 8, CONTROL_ROLE_SERVER, 1),
                "another process has come for the place of the lost node");
    /* the first one has been silent, and is lost, too, or has never come */
    expect_lost_place(hear_at(roster, 1200 + TIMEOUT_MS, 8, CONTROL_ROLE_SERVER, 0), 1);
    is_lost = NULL;
    expect_refused(hear_at(roster, 9000, 9, CONTROL_ROLE_SERVER, 0), "is one too many");
}
END_TEST

START_TEST(roster_forgets_who_is_silent_or_ends_until_all_are_here)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    hear_at(roster, 0, 1, CONTROL_ROLE_SERVER, 0);
    hear_at(roster, 500, 2, CONTROL_ROLE_SERVER, 0);
    roster_tick(roster, TIMEOUT_MS);
    ck_assert_str_eq(roster_missing(roster), "1 of 2 servers and 0 of 1 workers are here");
    hear_at(roster, 1100, 3, CONTROL_ROLE_SERVER, 0);
    roster_forget(roster, 3);
    roster_forget(roster, 77);
    ck_assert_str_eq(roster_missing(roster), "1 of 2 servers and 0 of 1 workers are here");
    hear_at(roster, 1200, 4, CONTROL_ROLE_SERVER, 0);
    hear_at(roster, 1300, 5, CONTROL_ROLE_WORKER, 0);
    roster_tick(roster, 1000 * TIMEOUT_MS);
    roster_forget(roster, 4);
    ck_assert(roster_is_full(roster));
}
END_TEST

/* What a stranger says is part of the text that all nodes read. */
START_TEST(roster_refuses_what_makes_no_sense)
{
    static const struct {
        ControlAnnounce announce;
        uint16_t version;
        const char *text;
    } wrong[] = {
        { { .servers = 1, .host = "10.0.0.1\"; id = 7; host = \"x" }, VERSION, "is no address" },
        { { .servers = 1, .host = "host.name" }, VERSION, "is no address" },
        { { .servers = 0, .host = "10.0.0.1" }, VERSION, "0 server threads" },
        { { .servers = 1, .workers = 1, .host = "10.0.0.1" }, VERSION, "and 1 workers" },
        { { .servers = UINT32_MAX, .host = "10.0.0.1" }, VERSION, "each number is at most" },
        { { .servers = 1, .host = "10.0.0.1" }, VERSION + 1, "speaks wire version 5" },
        { { .servers = 1, .host = "10.0.0.1", .wanted_id = UINT32_MAX }, VERSION, "1 to 3" },
        { { .role = CONTROL_ROLE_NODE, .servers = 1, .host = "10.0.0.1", .wanted_id = 1 },
          VERSION,
          "waits for no nodes" },
    };
    g_autoptr(Roster) roster = roster_new(&CONFIG);

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        ControlAnnounce announce = wrong[i].announce;

        announce.incarnation = 40 + i;
        if (announce.role == 0)
            announce.role = CONTROL_ROLE_SERVER;
        announce.description = "a stranger";
        roster_hear(roster, 0, &announce, wrong[i].version, 1, &answer);
        expect_refused(&answer, wrong[i].text);
    }
    ck_assert_str_eq(roster_missing(roster), "0 of 2 servers and 0 of 1 workers are here");
}
END_TEST

/* ---- spare places ---- */

/* Nodes 1 and 2 are servers, node 3 is a worker, 4 and 5 are spare. */
static RosterConfig config_with_spares(void)
{
    RosterConfig config = CONFIG;

    config.n_spares = 2;
    config.spare_servers = 6;
    return config;
}

static Roster *new_with_spares(void)
{
    const RosterConfig config = config_with_spares();

    return roster_new(&config);
}

static void fill(Roster *roster)
{
    hear(roster, 1, CONTROL_ROLE_SERVER, 0);
    hear(roster, 2, CONTROL_ROLE_SERVER, 0);
    hear(roster, 3, CONTROL_ROLE_WORKER, 0);
    ck_assert(roster_is_full(roster));
}

START_TEST(roster_is_full_without_its_spare_places)
{
    g_autoptr(Roster) roster = new_with_spares();
    g_autoptr(GError) error = NULL;

    fill(roster);
    const char *const file = roster_file(roster);
    g_autoptr(Cluster) cluster = cluster_parse(file, strlen(file), "it", &error);
    ck_assert_msg(cluster != NULL, "%s: %s", error != NULL ? error->message : "", file);
    ck_assert_uint_eq(cluster->n_nodes, 6);
    for (uint32_t id = 0; id < 6; id++)
        ck_assert_int_eq(cluster->nodes[id].spare, id > 3);
    ck_assert_uint_eq(cluster->nodes[4].servers, 6);
    ck_assert_uint_eq(cluster->nodes[4].workers, 0);
    ck_assert_str_eq(cluster->nodes[4].host, "10.0.0.1");
}
END_TEST

/* The run has begun: spare nodes are lost. */
START_TEST(roster_gives_spare_places_to_those_that_come_later)
{
    static const bool none[6] = { false }, both[6] = { false, false, false, false, true, true },
                      last[6] = { false, false, false, false, false, true },
                      and_a_lost[6] = { false, false, true, false, true, true };
    g_autoptr(Roster) roster = new_with_spares();

    fill(roster);
    roster_open(roster);
    g_autofree char *file = g_strdup(roster_file(roster));
    is_lost = and_a_lost;
    expect_lost_place(hear_at(roster, 0, 20, CONTROL_ROLE_SERVER, 0), 2); /* the lost one first */
    is_lost = both;
    expect_refused(hear_at(roster, 0, 4, CONTROL_ROLE_WORKER, 5),
                   "a spare place, which is for a server");
    expect_refused(hear_at(roster, 0, 4, CONTROL_ROLE_WORKER, 0), "is one too many");
    expect_refused(hear_at(roster, 0, 4, CONTROL_ROLE_SERVER, 6),
                   "are 1 to 3, and 4 to 5 are spare");
    expect_lost_place(hear_at(roster, 0, 5, CONTROL_ROLE_SERVER, 0), 4);
    ck_assert_str_eq(answer.place.file, file);
    expect_lost_place(hear_at(roster, 0, 6, CONTROL_ROLE_SERVER, 0), 5); /* at the same time */
    expect_lost_place(hear_at(roster, 100, 5, CONTROL_ROLE_SERVER, 0), 4);
    expect_wait(hear_at(roster, 100, 7, CONTROL_ROLE_SERVER, 0),
                "other processes have come for all spare places");
    is_lost = last;                             /* process 5 is in the run */
    roster_note_joining(roster, TIMEOUT_MS, 5); /* process 6 joins it */
    expect_wait(hear_at(roster, 2 * TIMEOUT_MS - 1, 7, CONTROL_ROLE_SERVER, 0),
                "other processes have come for all spare places");
    /* it has died before it was in the run */
    expect_lost_place(hear_at(roster, 2 * TIMEOUT_MS, 7, CONTROL_ROLE_SERVER, 0), 5);
    is_lost = none;
    expect_refused(hear_at(roster, 9000, 8, CONTROL_ROLE_SERVER, 0),
                   "is one too many; the run has 2 spare places (RUBATO_SPARES), which are taken");
    expect_refused(
        hear_at(roster, 9000, 8, CONTROL_ROLE_SERVER, 4),
        "node 4 was started twice: process 5 has this spare place, process 8 came later");
    is_lost = NULL;
}
END_TEST

START_TEST(roster_lets_those_wait_that_come_before_the_run_has_begun)
{
    static const char *const missing = "2 of 2 servers and 0 of 1 workers are here";
    g_autoptr(Roster) roster = new_with_spares();

    hear(roster, 1, CONTROL_ROLE_SERVER, 0);
    hear(roster, 2, CONTROL_ROLE_SERVER, 0);
    expect_wait(hear(roster, 4, CONTROL_ROLE_SERVER, 0), missing);
    expect_wait(hear(roster, 5, CONTROL_ROLE_SERVER, 5), missing);
    expect_refused(hear(roster, 6, CONTROL_ROLE_SERVER, 0), "2 spare places (RUBATO_SPARES)");
    expect_refused(hear(roster, 6, CONTROL_ROLE_SERVER, 4), "process 4 has this spare place");
    ck_assert(roster_knows(roster, 5) && !roster_knows(roster, 6));
    g_autoptr(GArray) askers = roster_askers(roster);
    ck_assert_uint_eq(askers->len, 4); /* they hear it, too, if the run cannot begin */
    roster_forget(roster, 4);          /* its place is free again */
    ck_assert(!roster_knows(roster, 4));
    expect_wait(hear(roster, 7, CONTROL_ROLE_SERVER, 0), missing);
    /* that of a process that has been silent, too */
    expect_wait(hear_at(roster, TIMEOUT_MS, 7, CONTROL_ROLE_SERVER, 0), missing);
    expect_wait(hear_at(roster, TIMEOUT_MS, 8, CONTROL_ROLE_SERVER, 0), missing);
    hear(roster, 3, CONTROL_ROLE_WORKER, 0);
    roster_open(roster);
    expect_lost_place(hear(roster, 7, CONTROL_ROLE_SERVER, 0), 4);
    expect_lost_place(hear(roster, 8, CONTROL_ROLE_SERVER, 0), 5);
}
END_TEST

START_TEST(roster_gives_who_waits_the_place_of_one_that_is_forgotten)
{
    g_autoptr(Roster) roster = new_with_spares();

    hear(roster, 1, CONTROL_ROLE_SERVER, 0);
    hear(roster, 2, CONTROL_ROLE_SERVER, 0);
    hear(roster, 4, CONTROL_ROLE_SERVER, 0);
    hear(roster, 5, CONTROL_ROLE_SERVER, 5); /* it wants to be a spare one */
    roster_forget(roster, 1);
    expect_wait(hear(roster, 5, CONTROL_ROLE_SERVER, 5),
                "1 of 2 servers and 0 of 1 workers are here");
    expect_wait(hear(roster, 4, CONTROL_ROLE_SERVER, 0),
                "2 of 2 servers and 0 of 1 workers are here");
    hear(roster, 3, CONTROL_ROLE_WORKER, 0);
    roster_open(roster);
    expect_id(hear(roster, 4, CONTROL_ROLE_SERVER, 0), 2);
    ck_assert(!answer.place.joins);
    expect_lost_place(hear(roster, 5, CONTROL_ROLE_SERVER, 5), 5);
}
END_TEST

/* Four equal nodes; node 0 is the scheduler's. */
static const RosterConfig EQUALS = { .n_nodes = 3,
                                     .servers = 5,
                                     .workers = 6,
                                     .host = "10.0.0.1",
                                     .port = 4100,
                                     .wire_version = VERSION,
                                     .timeout_ms = TIMEOUT_MS };

START_TEST(roster_of_equal_nodes_names_those_that_are_missing)
{
    g_autoptr(Roster) roster = roster_new(&EQUALS);
    g_autoptr(Roster) many = roster_new(&(RosterConfig){ .n_nodes = 40 });

    ck_assert_str_eq(roster_missing(roster), "1 of 4 nodes are here, without 1, 2, 3");
    expect_wait(hear(roster, 8, CONTROL_ROLE_NODE, 2), "2 of 4 nodes are here, without 1, 3");
    ck_assert_str_eq(roster_missing(many),
                     "1 of 41 nodes are here, without 1, 2, 3, 4, 5, 6, 7, 8 and 32 more");
    expect_refused(hear(roster, 9, CONTROL_ROLE_NODE, 0), "does not say which one it is");
    expect_refused(hear(roster, 9, CONTROL_ROLE_NODE, 2), "started twice");
    expect_refused(hear(roster, 9, CONTROL_ROLE_SERVER, 1), "waits for no servers");
}
END_TEST

START_TEST(roster_of_equal_nodes_gives_each_its_servers_and_workers)
{
    g_autoptr(Roster) roster = roster_new(&EQUALS);
    g_autoptr(GError) error = NULL;

    for (uint32_t id = 3; id >= 1; id--)
        hear(roster, id, CONTROL_ROLE_NODE, id);
    const char *const file = roster_file(roster);
    g_autoptr(Cluster) cluster = cluster_parse(file, strlen(file), "it", &error);
    ck_assert_msg(cluster != NULL, "%s: %s", error != NULL ? error->message : "", file);
    ck_assert_uint_eq(cluster->n_nodes, 4);
    ck_assert_uint_eq(cluster->nodes[0].servers, 5);
    ck_assert_uint_eq(cluster->nodes[0].workers, 6);
    for (uint32_t id = 1; id <= 3; id++) {
        ck_assert_uint_eq(cluster->nodes[id].servers, id + 1);
        ck_assert_uint_eq(cluster->nodes[id].workers, id + 1);
    }
}
END_TEST

START_TEST(spare_places_of_equal_nodes_are_asked_for_by_their_ids)
{
    static const bool lost[5] = { [4] = true };
    RosterConfig config = EQUALS;

    config.n_spares = 1;
    config.spare_servers = 5;
    config.spare_workers = 6;
    g_autoptr(Roster) roster = roster_new(&config);
    expect_wait(hear(roster, 9, CONTROL_ROLE_NODE, 4), "1 of 4 nodes are here, without 1, 2, 3");
    roster_forget(roster, 9);
    for (uint32_t id = 3; id >= 1; id--)
        hear(roster, id, CONTROL_ROLE_NODE, id);
    ck_assert_ptr_nonnull(strstr(roster_file(roster), "servers = 5; workers = 6; spare = true;"));
    roster_open(roster);
    is_lost = lost;
    expect_refused(hear(roster, 8, CONTROL_ROLE_SERVER, 4), "a spare place, which is for a node");
    expect_lost_place(hear(roster, 8, CONTROL_ROLE_NODE, 4), 4);
    is_lost = NULL;
}
END_TEST

START_TEST(roster_of_one_node_is_full_at_once)
{
    g_autoptr(Roster) roster =
        roster_new(&(RosterConfig){ .servers = 1, .workers = 2, .host = "::1", .port = 1 });

    ck_assert(roster_is_full(roster));
    ck_assert_ptr_nonnull(roster_file(roster));
}
END_TEST

START_TEST(roster_that_gave_up_refuses_all)
{
    g_autoptr(Roster) roster = roster_new(&CONFIG);
    hear(roster, 1, CONTROL_ROLE_SERVER, 0);
    g_autoptr(GArray) askers = roster_askers(roster);

    ck_assert_uint_eq(askers->len, 1);
    ck_assert_uint_eq(g_array_index(askers, uint64_t, 0), 1001);
    roster_give_up(roster, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), "nobody came");
    roster_give_up(roster, CONTROL_CODE(RUBATO_ERROR_CANCELLED), "a later cause");
    expect_refused(hear(roster, 1, CONTROL_ROLE_SERVER, 0), "nobody came");
    expect_refused(hear(roster, 2, CONTROL_ROLE_WORKER, 0), "nobody came");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roster");
    TCase *tcase = tcase_create("cases");

    tcase_add_test(tcase, roster_gives_servers_the_first_ids);
    tcase_add_test(tcase, roster_describes_the_run_as_a_cluster_file);
    tcase_add_test(tcase, roster_gives_wanted_ids);
    tcase_add_test(tcase, roster_refuses_who_comes_twice_or_too_much);
    tcase_add_test(tcase, roster_gives_the_places_of_lost_nodes_to_others);
    tcase_add_test(tcase, roster_forgets_who_is_silent_or_ends_until_all_are_here);
    tcase_add_test(tcase, roster_refuses_what_makes_no_sense);
    tcase_add_test(tcase, roster_is_full_without_its_spare_places);
    tcase_add_test(tcase, roster_gives_spare_places_to_those_that_come_later);
    tcase_add_test(tcase, roster_lets_those_wait_that_come_before_the_run_has_begun);
    tcase_add_test(tcase, roster_gives_who_waits_the_place_of_one_that_is_forgotten);
    tcase_add_test(tcase, spare_places_of_equal_nodes_are_asked_for_by_their_ids);
    tcase_add_test(tcase, roster_of_equal_nodes_names_those_that_are_missing);
    tcase_add_test(tcase, roster_of_equal_nodes_gives_each_its_servers_and_workers);
    tcase_add_test(tcase, roster_of_one_node_is_full_at_once);
    tcase_add_test(tcase, roster_that_gave_up_refuses_all);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
