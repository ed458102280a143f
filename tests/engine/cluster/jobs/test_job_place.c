/* What job systems say of a process, and what becomes of it. */
#include "engine/cluster/jobs/job_place.h"

#include <rubato/engine.h>
#include <rubato/error.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

#define OPEN_MPI \
    "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "PMIX_NAMESPACE=77", "PMIX_RANK=2"
#define HYDRA "PMI_FD=99", "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1"

static const struct {
    const char *variables[16];
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
    { { OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "127.0.0.1:24963",
        .servers = 1,
        .workers = 1,
        .node = 2,
        .nodes = 4 } },
    /* the first process was asked for before, of this job and not of another */
    { { OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "RUBATO_JOB_ANSWER=77 node9", "RUBATO_PORT=5" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "node9:5",
        .servers = 1,
        .workers = 1,
        .node = 2,
        .nodes = 4 } },
    /* mpirun has started its daemons as a step */
    { { SLURM, OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "RUBATO_PORT=5" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "127.0.0.1:5",
        .servers = 1,
        .workers = 1,
        .node = 2,
        .nodes = 4 } },
    { { HYDRA, "RUBATO_SCHEDULER=a:1" },
      { .role = RUBATO_ROLE_NODE,
        .scheduler = "a:1",
        .servers = 1,
        .workers = 1,
        .node = 1,
        .nodes = 2 } },
    { { HYDRA, "RUBATO_ROLE=alone" }, { .role = RUBATO_ROLE_NONE } },
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
    { { OPEN_MPI }, { "mpirun of Open MPI", "OMPI_COMM_WORLD_LOCAL_SIZE is not set" } },
    { { OPEN_MPI, "OMPI_COMM_WORLD_RANK=4" }, { "OMPI_COMM_WORLD_RANK is \"4\"", "alone" } },
    { { HYDRA, "PMI_SIZE=none" }, { "PMI_SIZE is \"none\"", "mpiexec" } },
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

/* What a job system of another kind might give as PMI_FD ends in an error. */
START_TEST(place_of_a_descriptor_that_does_not_answer_is_refused)
{
    static const char *const variables[] = { HYDRA, NULL };
    RubatoAnnouncement found;
    GError *error = NULL;

    set_variables(variables);
    ck_assert(!rubato_announcement_from_environment(&found, &error));
    ck_assert_int_eq(error->code, RUBATO_ERROR_NETWORK);
    ck_assert_msg(strstr(error->message, "PMI_FD names is not open") != NULL, "%s", error->message);
    g_clear_error(&error);
}
END_TEST

/* Plays Hydra: answers each line of `asked` by the one of `answers`, while it is what comes. */
typedef struct {
    int fd;
    const char *const *asked, *const *answers;
} Hydra;

static void *play_hydra(void *user_data)
{
    const Hydra *const hydra = user_data;
    FILE *const lines = fdopen(hydra->fd, "r+");
    char line[256];

    for (size_t i = 0; hydra->asked[i] != NULL && fgets(line, sizeof line, lines) != NULL; i++) {
        if (!g_str_has_prefix(line, hydra->asked[i]))
            break;
        if (dprintf(hydra->fd, "%s\n", hydra->answers[i]) < 0)
            break;
    }
    fclose(lines);
    return NULL;
}

static bool ask_hydra(const char *const *asked, const char *const *answers,
                      RubatoAnnouncement *found, GError **error)
{
    static const char *const variables[] = { HYDRA, NULL };
    int ends[2];
    g_autofree char *fd = NULL;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Hydra hydra = { ends[1], asked, answers };
    GThread *const thread = g_thread_new("hydra", play_hydra, &hydra);
    set_variables(variables);
    fd = g_strdup_printf("%d", ends[0]);
    g_setenv("PMI_FD", fd, TRUE);
    const bool ok = rubato_announcement_from_environment(found, error);
    if (ok) { /* it does not ask again */
        RubatoAnnouncement again;

        ck_assert(rubato_announcement_from_environment(&again, NULL));
        ck_assert_pstr_eq(again.scheduler, found->scheduler);
    }
    close(ends[0]);
    g_thread_join(thread);
    return ok;
}

static const char *const asked[] = { "cmd=get_my_kvsname", "cmd=barrier_in",
                                     "cmd=get kvsname=kvs_1 key=rubato-host", "cmd=finalize",
                                     NULL };

START_TEST(place_of_the_first_process_is_asked_of_hydra_once)
{
    static const char *const answers[] = { "cmd=my_kvsname kvsname=kvs_1", "cmd=barrier_out",
                                           "cmd=get_result rc=0 msg=success value=10.0.0.7",
                                           "cmd=finalize_ack" };
    RubatoAnnouncement found;
    GError *error = NULL;

    g_setenv("RUBATO_JOB_ANSWER", "1 kvs_9 another-host", TRUE);
    ck_assert_msg(ask_hydra(asked, answers, &found, &error), "%s",
                  error != NULL ? error->message : "");
    g_autofree char *expected = g_strdup_printf("10.0.0.7:%u", job_port_of("kvs_1"));
    ck_assert_pstr_eq(found.scheduler, expected);
    ck_assert_uint_eq(found.node, 1);
}
END_TEST

/* A key that is not there, and an end of the connection. */
static const char *const nonsense[][4] = {
    { "nothing" },
    { "cmd=my_kvsname kvsname=kvs_1", "cmd=barrier_out", "cmd=get_result rc=-1 msg=key_not_found" },
    { "cmd=my_kvsname kvsname=kvs_1", "cmd=barrier_out",
      "cmd=get_result rc=-1 msg=key_not_found value=unknown" },
    { "cmd=my_kvsname kvsname=kvs_1", "barrier" },
};

START_TEST(place_that_hydra_does_not_tell_is_refused)
{
    RubatoAnnouncement found;
    GError *error = NULL;

    ck_assert(!ask_hydra(asked, nonsense[_i], &found, &error));
    ck_assert_int_eq(error->code, RUBATO_ERROR_NETWORK);
    ck_assert_msg(strstr(error->message, "mpiexec has started this process, but it answers") !=
                      NULL,
                  "%s", error->message);
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
    tcase_add_test(tcase, place_of_a_descriptor_that_does_not_answer_is_refused);
    tcase_add_test(tcase, place_of_the_first_process_is_asked_of_hydra_once);
    tcase_add_loop_test(tcase, place_that_hydra_does_not_tell_is_refused, 0,
                        G_N_ELEMENTS(nonsense));
    tcase_add_test(tcase, place_has_a_port_that_is_the_same_for_the_same_step);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
