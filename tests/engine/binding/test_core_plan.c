/* Which cores threads get, on machines that hwloc makes up. */
#include <stdio.h>
#include <string.h>

#include "engine/binding/core_plan.h"
#include "engine/binding/core_users.h"
#include "tests/support/runner.h"

enum { MOST_NODES = 4 };

/* Each case runs in a process of its own, whose environment it may change. */
static CoreTopology *machine(const char *synthetic)
{
    g_autoptr(GError) error = NULL;

    g_setenv("HWLOC_SYNTHETIC", synthetic, TRUE);
    g_setenv("HWLOC_THISSYSTEM", "0", TRUE);
    CoreTopology *const topology = core_topology_read(&error);
    ck_assert_msg(topology != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(topology->is_made_up);
    return topology;
}

#define TWO_NUMA "numa:2 core:4 pu:2"

static const struct {
    const char *machine;
    CoreUser users[MOST_NODES];
    uint32_t n, self;
    const char *text, *shortage; /* NULL: nothing is short */
} plans[] = {
    { "core:4 pu:1",
      { { 1, 3 } },
      1,
      0,
      "server 0 on processor 0; workers 0-2 on processors 1-3; other threads on processors 0-3",
      NULL },
    /* both processors of a core are one thread's */
    { "core:2 pu:2",
      { { 1, 1 } },
      1,
      0,
      "server 0 on processors 0-1; worker 0 on processors 2-3; other threads on processors 0-3",
      NULL },
    /* a server in each NUMA node, and workers that stay in one */
    { TWO_NUMA,
      { { 2, 4 } },
      1,
      0,
      "server 0 on processors 0-1 (NUMA node 0), server 1 on processors 8-9 (NUMA node 1); workers "
      "0-1 on processors 2-7 (NUMA node 0), workers 2-3 on processors 10-15 (NUMA node 1); other "
      "threads on processors 0-15",
      NULL },
    /* nodes of a host have none in common, and these are the NUMA nodes of the machine */
    { TWO_NUMA,
      { { 1, 2 }, { 1, 2 } },
      2,
      0,
      "server 0 on processors 0-1 (NUMA node 0); workers 0-1 on processors 2-7 (NUMA node 0); "
      "other "
      "threads on processors 0-7",
      NULL },
    { TWO_NUMA,
      { { 1, 2 }, { 1, 2 } },
      2,
      1,
      "server 0 on processors 8-9 (NUMA node 1); workers 0-1 on processors 10-15 (NUMA node 1); "
      "other threads on processors 8-15",
      NULL },
    /* in proportion to their threads */
    { "core:8 pu:1",
      { { 1, 5 }, { 1, 1 } },
      2,
      1,
      "server 0 on processor 6; worker 0 on processor 7; other threads on processors 6-7",
      NULL },
    { "core:4 pu:1",
      { { 2, 0 } },
      1,
      0,
      "server 0 on processor 0, server 1 on processor 2; other threads on processors 0-3",
      NULL },
    { "core:4 pu:1",
      { { 0, 2 } },
      1,
      0,
      "workers 0-1 on processors 0-3; other threads on processors 0-3",
      NULL },
    { "core:4 pu:1", { { 0, 0 }, { 1, 2 } }, 2, 0, "all threads on processor 0", NULL },
    /* too few */
    { "core:2 pu:1",
      { { 1, 2 } },
      1,
      0,
      "server 0 on processor 0; workers 0-1 on processors 0-1; other threads on processors 0-1",
      "1 server and 2 workers share 2 cores" },
    { "core:2 pu:1",
      { { 3, 1 } },
      1,
      0,
      "server 0 on processor 0, server 1 on processor 1, server 2 on processor 0; worker 0 on "
      "processors 0-1; other threads on processors 0-1",
      "3 servers share 2 cores" },
    { "core:4 pu:1",
      { { 1, 1 }, { 1, 4 }, { 1, 1 } },
      3,
      1,
      "server 0 on processor 1; workers 0-3 on processor 1; other threads on processor 1",
      "1 server and 4 workers share 1 core" },
    { "core:2 pu:1",
      { { 1, 1 }, { 1, 1 }, { 1, 1 } },
      3,
      2,
      "server 0 on processor 0; worker 0 on processor 0; other threads on processor 0",
      "there are fewer cores than the 3 nodes of this host, so nodes share them" },
};

START_TEST(a_plan_follows_from_the_machine_and_the_numbers)
{
    g_autoptr(CoreTopology) topology = machine(plans[_i].machine);
    g_autoptr(CorePlan) plan =
        core_plan_new(topology, plans[_i].users, plans[_i].n, plans[_i].self);
    g_autofree char *text = core_plan_describe(plan, topology, 0);
    g_autofree char *shortage = core_plan_shortage(plan);

    ck_assert_str_eq(text, plans[_i].text);
    ck_assert_pstr_eq(shortage, plans[_i].shortage);
}
END_TEST

static void mark(const CoreList *list, bool *is_taken)
{
    for (uint32_t i = 0; i < list->n; i++)
        is_taken[list->cores[i]] = true;
}

/* What holds of every plan of these users; `taken` has whose the cores are, or n. */
static void check_plan(const CoreTopology *topology, const CoreUser *users, uint32_t n,
                       uint32_t self, uint32_t *taken)
{
    g_autoptr(CorePlan) plan = core_plan_new(topology, users, n, self);
    g_autofree bool *servers = g_new0(bool, topology->n_cores);
    uint64_t n_threads = 0;

    for (uint32_t i = 0; i < n; i++)
        n_threads += MAX(1, users[i].servers + users[i].workers);
    require_msg(plan->nodes_share == (topology->n_cores < n), "nodes share");
    if (n_threads <= topology->n_cores)
        require_msg(!plan->nodes_share && !plan->servers_share && !plan->workers_share,
                    "node %u of %u shares, and there are enough cores", self, n);
    for (uint32_t i = 0; i < plan->all.n && !plan->nodes_share; i++) {
        uint32_t *const owner = &taken[plan->all.cores[i]];

        require_msg(*owner == n, "core %u has nodes %u and %u", plan->all.cores[i], *owner, self);
        *owner = self;
    }
    for (uint32_t i = 0; i < plan->n_servers; i++) {
        const uint32_t core = plan->servers[i].cores[0];

        require_msg(plan->servers_share || !servers[core], "two servers on core %u", core);
        require_msg(plan->nodes_share || taken[core] == self, "server on a core of another node");
        mark(&plan->servers[i], servers);
    }
    for (uint32_t i = 0; i < plan->n_workers; i++) {
        require_msg(plan->workers[i].n > 0, "worker %u has no core", i);
        for (uint32_t k = 0; k < plan->workers[i].n; k++) {
            const uint32_t core = plan->workers[i].cores[k];

            require_msg(plan->workers_share || !servers[core], "worker on a server's core");
            require_msg(plan->nodes_share || taken[core] == self, "worker on another node's core");
            require_msg(topology->cores[core].numa ==
                            topology->cores[plan->workers[i].cores[0]].numa,
                        "worker in two NUMA nodes");
        }
    }
}

/* All numbers of threads, of up to four nodes, on machines of several shapes. */
START_TEST(no_core_has_two_owners_as_long_as_there_are_enough)
{
    static const char *const machines[] = { "core:1 pu:1", "core:7 pu:1", TWO_NUMA,
                                            "pack:2 numa:2 core:3 pu:2" };
    g_autoptr(CoreTopology) topology = machine(machines[_i]);
    GRand *const random = g_rand_new_with_seed((guint32)_i + 1);

    for (int turn = 0; turn < 2000; turn++) {
        const uint32_t n = (uint32_t)g_rand_int_range(random, 1, MOST_NODES + 1);
        g_autofree uint32_t *taken = g_new(uint32_t, topology->n_cores);
        CoreUser users[MOST_NODES];

        for (uint32_t i = 0; i < topology->n_cores; i++)
            taken[i] = n;
        for (uint32_t i = 0; i < n; i++)
            users[i] = (CoreUser){ (uint32_t)g_rand_int_range(random, 0, 5),
                                   (uint32_t)g_rand_int_range(random, 0, 7) };
        for (uint32_t i = 0; i < n; i++)
            check_plan(topology, users, n, i, taken);
    }
    g_rand_free(random);
}
END_TEST

START_TEST(a_long_plan_is_cut)
{
    g_autoptr(CoreTopology) topology = machine("core:64 pu:1");
    g_autoptr(CorePlan) plan = core_plan_new(topology, &(CoreUser){ 40, 8 }, 1, 0);
    g_autofree char *text = core_plan_describe(plan, topology, 100);

    ck_assert_msg(g_str_has_prefix(text, "server 100 on processor 0, server 101 on "), "%s", text);
    ck_assert_msg(strstr(text, ", and 24 more; workers 0-7 on ") != NULL, "%s", text);
}
END_TEST

#define CLUSTER \
    "cluster: { scheduler = { host = \"127.0.0.1\"; port = 4100; }; bind_cores = true; nodes = ("
/* Documentation's addresses are those of no machine. */
#define NODE(id, host) "{ id = " id "; host = \"" host "\"; port = 0; workers = " id "; }"

START_TEST(nodes_of_other_hosts_do_not_count)
{
    static const char text[] = CLUSTER NODE("1", "192.0.2.1") "," NODE("2", "localhost") "," NODE(
        "3", "192.0.2.1") "," NODE("4", "127.0.0.1") "); };";
    g_autoptr(GError) error = NULL;
    g_autoptr(Cluster) cluster = cluster_parse(text, strlen(text), "four.cfg", &error);
    uint32_t n, self;

    ck_assert_msg(cluster != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(cluster->bind_cores && !cluster->numa);
    g_autofree bool *here = core_users_hosts_here(cluster);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(here[i], i % 2 == 1);
    g_autofree CoreUser *users = core_users_of(cluster, 3, here, &n, &self);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(self, 1);
    ck_assert_uint_eq(users[0].workers, 2);
    ck_assert_uint_eq(users[1].workers, 4);
    /* this node is here, whatever its host's name is */
    g_autofree CoreUser *others = core_users_of(cluster, 0, here, &n, &self);
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(self, 0);
    ck_assert_uint_eq(others[0].workers, 1);
}
END_TEST

/* Where the processes will be that take spare places is not known, if nodes announce themselves. */
START_TEST(spare_places_have_no_cores_before_a_process_takes_them)
{
    static const char text[] = CLUSTER NODE("1", "127.0.0.1") ", { id = 2; host = \"127.0.0.1\"; "
                                                              "port = 0; spare = true; } ); };";
    static const char *const expected[] = {
        "server 0 on processor 0; worker 0 on processor 1; other ",
        "server 0 on processor 0; worker 0 on processors 1-3; other "
    };
    g_autoptr(Cluster) cluster = cluster_parse(text, strlen(text), "two.cfg", NULL);
    g_autoptr(CoreTopology) topology = machine("core:4 pu:1");

    ck_assert_ptr_nonnull(cluster);
    const CoreNode node = { .cluster = cluster, .number = 0, .is_announced = _i == 1 };
    g_autoptr(CorePlan) plan = core_users_plan(topology, &node);
    g_autofree char *is = core_plan_describe(plan, topology, 0);
    ck_assert_msg(g_str_has_prefix(is, expected[_i]), "%s", is);
}
END_TEST

static void count_warning(const gchar *domain, GLogLevelFlags level, const gchar *text,
                          gpointer user_data)
{
    (void)domain;
    if ((level & G_LOG_LEVEL_WARNING) != 0 &&
        strstr(text, "count as those of another host") != NULL)
        ++*(unsigned *)user_data;
}

START_TEST(a_host_that_cannot_be_resolved_is_another_one_and_the_log_says_so)
{
    static const char text[] =
        CLUSTER NODE("1", "a..b") "," NODE("2", "localhost") "," NODE("3", "a..b") "); };";
    g_autoptr(Cluster) cluster = cluster_parse(text, strlen(text), "three.cfg", NULL);
    unsigned n_warnings = 0;

    ck_assert_ptr_nonnull(cluster);
    g_log_set_default_handler(count_warning, &n_warnings);
    ck_assert(!core_users_host_is_here("a..b")); /* no name server is asked for such a name */
    ck_assert_uint_eq(n_warnings, 1);
    ck_assert(core_users_host_is_here("127.0.0.1"));
    ck_assert(!core_users_host_is_here("192.0.2.1"));
    ck_assert_uint_eq(n_warnings, 1);
    g_autofree bool *here = core_users_hosts_here(cluster); /* looks a name up once */
    ck_assert_uint_eq(n_warnings, 2);
    ck_assert(!here[0] && here[1] && !here[2]);
}
END_TEST

START_TEST(cores_that_a_job_system_gave_to_a_node_are_its_own)
{
    const CoreTopology part = { .n_cores = 2, .n_machine_cores = 8 };
    const CoreTopology whole = { .n_cores = 8, .n_machine_cores = 8 };

    ck_assert(core_users_are_apart(&part, /* is_announced= */ true));
    ck_assert(!core_users_are_apart(&part, false));
    ck_assert(!core_users_are_apart(&whole, true));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core_plan");
    TCase *tcase = tcase_create("core_plan");
    g_autoptr(GError) error = NULL;
    CoreTopology *const topology = core_topology_read(&error);

    if (topology == NULL) {
        printf("skipped: %s\n", error->message);
        return TEST_SKIPPED;
    }
    core_topology_free(topology);
    tcase_add_loop_test(tcase, a_plan_follows_from_the_machine_and_the_numbers, 0,
                        G_N_ELEMENTS(plans));
    tcase_add_loop_test(tcase, no_core_has_two_owners_as_long_as_there_are_enough, 0, 4);
    tcase_add_test(tcase, a_long_plan_is_cut);
    tcase_add_test(tcase, nodes_of_other_hosts_do_not_count);
    tcase_add_loop_test(tcase, spare_places_have_no_cores_before_a_process_takes_them, 0, 2);
    tcase_add_test(tcase, a_host_that_cannot_be_resolved_is_another_one_and_the_log_says_so);
    tcase_add_test(tcase, cores_that_a_job_system_gave_to_a_node_are_its_own);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
