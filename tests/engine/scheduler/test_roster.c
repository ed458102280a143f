/* The roster of a run without a cluster file: who gets which id, who is refused, who is
 * forgotten. */
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/scheduler/roster.h"
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
    tcase_add_test(tcase, roster_of_equal_nodes_names_those_that_are_missing);
    tcase_add_test(tcase, roster_of_equal_nodes_gives_each_its_servers_and_workers);
    tcase_add_test(tcase, roster_of_one_node_is_full_at_once);
    tcase_add_test(tcase, roster_that_gave_up_refuses_all);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
