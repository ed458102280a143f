/* What job systems say of a process, and what becomes of it. */
#include "engine/cluster/jobs/job_place.h"

#include <rubato/engine.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/jobs/job_port.h"
#include "engine/cluster/jobs/slurm_hosts.h"
#include "tests/support/runner.h"

static const struct {
    const char *list, *first;
} lists[] = {
    { "node1", "node1" },
    { "node1,node2", "node1" },
    { "node[003-005,9],login1", "node003" },
    { "n[7]", "n7" },
    { "rack[2-3]n[01,05].example.org", "rack2n01.example.org" },
    { "127.0.0.[2-3]", "127.0.0.2" },
    { "", NULL },
    { ",node1", NULL },
    { "node[", NULL },
    { "node[]", NULL },
    { "node[1", NULL },
    { "node[1;2]", NULL },
    { "node[a-b]", NULL },
    { "node]1", NULL },
    { "two words", NULL },
};

START_TEST(slurm_first_host_reads_lists)
{
    g_autofree char *first = slurm_first_host(lists[_i].list);

    ck_assert_pstr_eq(first, lists[_i].first);
}
END_TEST

/* A case runs in a process of its own, whose environment it may change. */
static void set_variables(const char *const *variables)
{
    for (; *variables != NULL; variables++) {
        g_auto(GStrv) parts = g_strsplit(*variables, "=", 2);

        g_setenv(parts[0], parts[1], TRUE);
    }
}

#define SLURM                                                                         \
    "SLURM_JOB_ID=31", "SLURM_STEP_ID=2", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=8", \
        "SLURM_STEP_NUM_NODES=4", "SLURM_STEP_NODELIST=rack[07-10]",                  \
        "SLURM_STEP_RESV_PORTS=13001-13002"

static const struct {
    const char *variables[12];
    RubatoAnnouncement expected; /* without role: none */
} places[] = {
    { { SLURM },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "rack07:13001",
        .servers = 1,
        .workers = 1,
        .node = 3,
        .nodes = 8 } },
    { { SLURM, "SLURM_CPUS_PER_TASK=6", "RUBATO_INTERFACE=eth1" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "rack07:13001",
        .servers = 1,
        .workers = 6,
        .node = 3,
        .nodes = 8,
        .interface = "eth1" } },
    { { SLURM, "RUBATO_PORT=99", "RUBATO_SERVERS=0", "RUBATO_WORKERS=5" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "rack07:99",
        .servers = 0,
        .workers = 5,
        .node = 3,
        .nodes = 8 } },
    { { SLURM, "RUBATO_SCHEDULER=a:1", "SLURM_DISTRIBUTION=arbitrary" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "a:1",
        .servers = 1,
        .workers = 1,
        .node = 3,
        .nodes = 8 } },
    /* on one host they need no network */
    { { SLURM, "SLURM_STEP_NUM_NODES=1" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "127.0.0.1:13001",
        .servers = 1,
        .workers = 1,
        .node = 3,
        .nodes = 8 } },
    { { SLURM, "RUBATO_ROLE=alone" }, { .role = RUBATO_ROLE_NONE } },
    { { SLURM, "RUBATO_CLUSTER=pair.cfg", "RUBATO_NODE=0" }, { .role = RUBATO_ROLE_NONE } },
    { { SLURM, "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:1" },
      { .role = RUBATO_ROLE_WORKER, .scheduler = "a:1" } },
    { { SLURM, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1" }, { .role = RUBATO_ROLE_NONE } },
    { { SLURM, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "RUBATO_ROLE=node" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "rack07:13001",
        .servers = 1,
        .workers = 1,
        .node = 0,
        .nodes = 1 } },
    /* a batch script is no step */
    { { "SLURM_JOB_ID=31", "SLURM_PROCID=0", "SLURM_NTASKS=8" }, { .role = RUBATO_ROLE_NONE } },
};

START_TEST(place_becomes_an_announcement)
{
    const RubatoAnnouncement *const expected = &places[_i].expected;
    RubatoAnnouncement found;
    GError *error = NULL;

    set_variables(places[_i].variables);
    ck_assert_msg(rubato_announcement_from_environment(&found, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_eq(found.role, expected->role);
    ck_assert_pstr_eq(found.scheduler, expected->scheduler);
    ck_assert_pstr_eq(found.interface, expected->interface);
    ck_assert_uint_eq(found.servers, expected->servers);
    ck_assert_uint_eq(found.workers, expected->workers);
    ck_assert_uint_eq(found.node, expected->node);
    ck_assert_uint_eq(found.nodes, expected->nodes);
}
END_TEST

static const struct {
    const char *variables[12];
    const char *texts[2];
} wrong[] = {
    { { SLURM, "SLURM_PROCID=8" }, { "SLURM_PROCID is \"8\"", "from 0 to 7" } },
    { { SLURM, "SLURM_STEP_NUM_TASKS=" }, { "SLURM_STEP_NUM_TASKS", "srun" } },
    { { SLURM, "SLURM_STEP_NUM_TASKS=5000" }, { "to 4096", "alone" } },
    { { SLURM, "SLURM_STEP_NODELIST=[" }, { "SLURM_STEP_NODELIST", "RUBATO_SCHEDULER=HOST:PORT" } },
    { { SLURM, "SLURM_DISTRIBUTION=arbitrary" }, { "arbitrarily", "RUBATO_SCHEDULER=HOST:PORT" } },
    { { SLURM, "SLURM_HET_SIZE=2" }, { "2 components", "RUBATO_SCHEDULER=HOST:PORT" } },
    { { SLURM, "RUBATO_PORT=70000" }, { "RUBATO_PORT is \"70000\"", "65535" } },
    { { SLURM, "RUBATO_NODES=2" }, { "RUBATO_NODE is 3", "0 to 1" } },
};

START_TEST(place_that_makes_no_sense_is_refused)
{
    RubatoAnnouncement found = { .threads = 77 };
    GError *error = NULL;

    set_variables(wrong[_i].variables);
    ck_assert(!rubato_announcement_from_environment(&found, &error));
    ck_assert_int_eq(error->code, RUBATO_ERROR_INVALID);
    for (size_t i = 0; i < 2; i++)
        ck_assert_msg(strstr(error->message, wrong[_i].texts[i]) != NULL, "%s", error->message);
    ck_assert_uint_eq(found.threads, 77);
    g_clear_error(&error);
}
END_TEST

/* Where a system gives any port to those who ask, somebody may have it. */
START_TEST(place_has_a_port_that_is_the_same_for_the_same_step)
{
    ck_assert_uint_eq(job_port_of("7.1"), job_port_of("7.1"));
    ck_assert_uint_ne(job_port_of("7.1"), job_port_of("7.2"));
    for (uint32_t i = 0; i < 1000; i++) {
        g_autofree char *step = g_strdup_printf("%u.0", i);
        const uint16_t port = job_port_of(step);

        require_msg(port >= 10000 && port < 30000, "%u", port);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job_place");
    TCase *tcase = tcase_create("cases");

    tcase_add_loop_test(tcase, slurm_first_host_reads_lists, 0, G_N_ELEMENTS(lists));
    tcase_add_loop_test(tcase, place_becomes_an_announcement, 0, G_N_ELEMENTS(places));
    tcase_add_loop_test(tcase, place_that_makes_no_sense_is_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(tcase, place_has_a_port_that_is_the_same_for_the_same_step);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
