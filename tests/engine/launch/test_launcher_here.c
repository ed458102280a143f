/* `rubato check` without a file, in environments and on machines that the cases make up. */
#include <arpa/inet.h>
#include <json-glib/json-glib.h>
#include <netinet/in.h>
#include <rubato/launcher.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/binding/core_topology.h"
#include "engine/launch/launcher_findings.h"
#include "engine/launch/launcher_machine.h"
#include "test_paths.h"
#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

/* Each case runs in a process of its own, whose environment and limits it may change. */
static void set_variables(const char *const *variables)
{
    for (; *variables != NULL; variables++) {
        g_auto(GStrv) parts = g_strsplit(*variables, "=", 2);

        g_setenv(parts[0], parts[1], TRUE);
    }
}

/* Takes away what the test itself was started with. */
static void clear_variables(void)
{
    static const char *const prefixes[] = { "SLURM_", "PMI",         "OMPI_",  "MPI_",
                                            "HYDI_",  "KUBERNETES_", "RUBATO_" };
    g_auto(GStrv) all = g_listenv();

    for (size_t i = 0; all[i] != NULL; i++)
        for (size_t j = 0; j < G_N_ELEMENTS(prefixes); j++)
            if (g_str_has_prefix(all[i], prefixes[j]))
                g_unsetenv(all[i]);
}

typedef struct {
    const char *name, *text;
    RubatoFindingState state;
    const char *advice; /* a part of it; NULL: there is none */
} Expected;

/* Whether the finding has the text as a part; that of who has started the process, as the whole. */
static bool has_text(const RubatoFinding *finding, const char *text)
{
    return strcmp(finding->name, "started by") == 0 ? strcmp(finding->text, text) == 0
                                                    : strstr(finding->text, text) != NULL;
}

static void expect(const GPtrArray *findings, const Expected *expected)
{
    for (guint i = 0; i < findings->len; i++) {
        const RubatoFinding *const finding = g_ptr_array_index(findings, i);

        if (strcmp(finding->name, expected->name) != 0)
            continue;
        ck_assert_msg(has_text(finding, expected->text), "%s: '%s' is not in '%s'", finding->name,
                      expected->text, finding->text);
        ck_assert_msg(finding->state == expected->state, "%s is %d: %s; %s", finding->name,
                      (int)finding->state, finding->text, finding->advice);
        ck_assert_msg((finding->advice != NULL) == (expected->advice != NULL), "%s: %s",
                      finding->name, finding->advice);
        if (expected->advice != NULL) {
            ck_assert_msg(strstr(finding->advice, expected->advice) != NULL,
                          "%s: '%s' is not in '%s'", finding->name, expected->advice,
                          finding->advice);
            ck_assert_msg(strchr(finding->advice, '\n') == NULL, "%s", finding->advice);
        }
        return;
    }
    ck_abort_msg("nothing is said of '%s'", expected->name);
}

/* ---- environments ---- */

#define STEP                                                                          \
    "SLURM_JOB_ID=31", "SLURM_STEP_ID=2", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=8", \
        "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=rack07", "SLURM_STEP_RESV_PORTS=13001"
#define WORKER "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=127.0.0.1:4100"
#define SCHEDULER "RUBATO_ROLE=scheduler", "RUBATO_SERVERS=2", "RUBATO_WORKERS=3"
/* The resolver refuses a label of more than 63 letters without asking anybody. */
#define NO_HOST "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define FINE RUBATO_FINDING_FINE
#define SHORT RUBATO_FINDING_SHORT
#define FAILS RUBATO_FINDING_FAILS

static const struct {
    const char *variables[12];
    Expected expected[6];
} environments[] = {
    { { NULL },
      { { "started by", "no job system, and no variables of Rubato", FINE, NULL },
        { "role", "a process of its own", FINE, NULL },
        { "address", "), if this were a node", FINE, NULL },
        { "transport", "none", FINE, NULL } } },
    { { STEP, "SLURM_CPUS_PER_TASK=1", "PMI_RANK=3" },
      { { "started by", "Slurm, process 3 of 8", FINE, NULL },
        { "role", "node 3 of 8, with 1 server thread and 1 worker", FINE, NULL },
        { "scheduler", "127.0.0.1:13001, which is tcp://127.0.0.1:13001", FINE, NULL },
        { "address", "127.0.0.1 (lo)", FINE, NULL },
        { "transport", "shm within a host, tcp between hosts", FINE, NULL },
        { "secret", "none, and none is needed", FINE, NULL } } },
    { { STEP, "RUBATO_SETTINGS=transport = \"shm+ucx\";" },
      { { "transport", "shm within a host, ucx between hosts", FINE, NULL } } },
    { { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=2", "PMI_FD=7",
        "RUBATO_SCHEDULER=127.0.0.1:4100", "RUBATO_SETTINGS=collectives = \"mpi\";" },
      { { "started by", "MPICH, process 1 of 2", FINE, NULL },
        { "collectives", "over mpi", FAILS, "Open MPI" } } },
    { { STEP, "SLURM_PROCID=8" },
      { { "started by", "Slurm", FINE, NULL }, { "role", "none", FAILS, "from 0 to 7" } } },
    { { "SLURM_JOB_ID=31" },
      { { "started by", "Slurm, outside of a step: srun starts nodes", FINE, NULL },
        { "role", "a process of its own", FINE, NULL } } },
    { { "PMI_RANK=1", "PMI_SIZE=4" },
      { { "started by", "mpiexec (PMI), process 1 of 4", FINE, NULL },
        { "role", "a process of its own", SHORT,
          "RUBATO_NODE=$PMI_RANK, RUBATO_NODES=$PMI_SIZE and" } } },
    { { "PMIX_RANK=1" },
      { { "started by", "PMIx, process 1", FINE, NULL },
        { "role", "a process of its own", SHORT, "RUBATO_NODE=$PMIX_RANK, RUBATO_NODES and" } } },
    { { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_RANK=0", "RUBATO_ROLE=alone" },
      { { "started by", "mpirun of Open MPI, process 0 of 2; RUBATO_ROLE=alone", FINE, NULL },
        { "role", "a process of its own", FINE, NULL } } },
    { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "PMIX_NAMESPACE=77" },
      { { "started by", "Open MPI, process 1 of 2", FINE, NULL },
        { "role", "node 1 of 2, with 1 server thread and 1 worker", FINE, NULL },
        { "address", "127.0.0.1 (lo)", FINE, NULL } } },
    { { "KUBERNETES_SERVICE_HOST=10.96.0.1" },
      { { "started by", "Kubernetes", FINE, NULL },
        { "role", "a process of its own", SHORT, "set RUBATO_ROLE and RUBATO_SCHEDULER" } } },
    { { "KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=2" },
      { { "role", "a process of its own", SHORT, "RUBATO_NODE=$JOB_COMPLETION_INDEX" } } },
    { { "KUBERNETES_SERVICE_HOST=10.96.0.1", WORKER,
        "RUBATO_SECRET="
        "00112233445566778899aabbccddeeff"
        "00112233445566778899aabbccddeeff" },
      { { "started by", "Kubernetes; RUBATO_ROLE=worker", FINE, NULL },
        { "role", "a worker node of 1 worker", FINE, NULL },
        { "address", "127.0.0.1 (lo)", FINE, NULL },
        { "secret", "that of RUBATO_SECRET", FINE, NULL } } },
    { { "RUBATO_ROLE=worker" }, { { "role", "none", FAILS, "RUBATO_SCHEDULER=HOST:PORT" } } },
    { { WORKER, "RUBATO_THREADS=1024" },
      { { "role", "a worker node of 1024 workers", FINE, NULL },
        { "cores", "of which this process may use ", SHORT, "1024 workers" } } },
    { { WORKER, "RUBATO_SETTINGS=transport = \"tcp\"; encrypt = true;" },
      { { "transport", "tcp, encrypted", FINE, NULL },
        { "secret", "none that this node may use", FAILS, "RUBATO_SECRET" } } },
    { { WORKER, "RUBATO_SETTINGS=timeout = 3;" },
      { { "settings", "timeout = 3;", FAILS, "timeout_ms" } } },
    { { WORKER, "RUBATO_SCHEDULER=" NO_HOST ":4100", "RUBATO_SETTINGS=rendezvous_ms = 7000;" },
      { { "scheduler", NO_HOST ":4100: ", SHORT, "looks again for 7 s" } } },
    { { WORKER, "RUBATO_SCHEDULER=4100" },
      { { "scheduler", "4100", FAILS, "it has to be HOST:PORT" } } },
    { { SCHEDULER, "RUBATO_SCHEDULER=127.0.0.1:4100", "RUBATO_SPARES=2" },
      { { "role", "the scheduler of 2 servers and 3 workers and 2 spare places", FINE, NULL } } },
    { { STEP, "RUBATO_SPARES=1", "RUBATO_NODE=8" },
      { { "role", "node 8 of 8 and 1 spare place, with 1 server thread", FINE, NULL } } },
    { { WORKER, "RUBATO_INTERFACE=none7" },
      { { "address", "none at which", FAILS, "there are lo (127.0.0.1)" } } },
    { { SCHEDULER, "RUBATO_SCHEDULER=" ELSEWHERE ":4100" },
      { { "role", "the scheduler of 2 servers and 3 workers", FINE, NULL },
        { "address", "none at which", FAILS, "RUBATO_INTERFACE" } } },
};

START_TEST(environment_tells_what_a_program_would_be)
{
    const Expected *expected = environments[_i].expected;

    clear_variables();
    set_variables(environments[_i].variables);
    g_autoptr(GPtrArray) findings = rubato_launch_check_here();
    for (size_t i = 0; i < G_N_ELEMENTS(environments[_i].expected) && expected[i].name != NULL; i++)
        expect(findings, &expected[i]);
}
END_TEST

/* Machines that hwloc makes up. */
#define TWO_NUMA "HWLOC_THISSYSTEM=0", "HWLOC_SYNTHETIC=numa:2 core:2 pu:1"

static const struct {
    const char *variables[12];
    Expected expected[2];
} bound[] = {
    { { TWO_NUMA },
      { { "NUMA nodes", "2: 0 with 2 cores", FINE, NULL },
        { "bound", "no threads; with --bind-cores they would be: server 0 on processor 0", FINE,
          NULL } } },
    { { TWO_NUMA, WORKER, "RUBATO_THREADS=2", "RUBATO_SETTINGS=numa = true;" },
      { { "bound", "worker 0 on processors 0-1 (NUMA node 0), worker 1 on processors 2-3", FINE,
          NULL } } },
    { { "HWLOC_THISSYSTEM=0", "HWLOC_SYNTHETIC=core:2 pu:1", WORKER, "RUBATO_THREADS=4",
        "RUBATO_SETTINGS=bind_cores = true;" },
      { { "bound", "workers 0-3 on processors 0-1", SHORT, "4 workers share 2 cores" } } },
};

START_TEST(machine_decides_which_threads_would_be_bound_where)
{
    const Expected *expected = bound[_i].expected;
    g_autoptr(CoreTopology) topology = core_topology_read(NULL);

    clear_variables();
    set_variables(bound[_i].variables);
    g_autoptr(GPtrArray) findings = rubato_launch_check_here();
    for (size_t i = 0; i < G_N_ELEMENTS(bound[_i].expected) && expected[i].name != NULL; i++)
        if (topology != NULL)
            expect(findings, &expected[i]);
        else if (_i > 0) /* it is asked for */
            expect(findings, &(Expected){ "bound", "none can be", FAILS, "libhwloc-dev" });
}
END_TEST

/* Loop: 0, another program has the port; 1, nobody has. */
START_TEST(port_of_the_scheduler_is_tried)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    if (_i == 1)
        close(fd);
    g_autofree char *scheduler =
        g_strdup_printf("RUBATO_SCHEDULER=127.0.0.1:%u", ntohs(address.sin_port));
    clear_variables();
    set_variables((const char *const[]){ SCHEDULER, scheduler, NULL });
    g_autoptr(GPtrArray) findings = rubato_launch_check_here();
    expect(findings, _i == 0 ? &(Expected){ "port", "cannot be opened", FAILS, "end that one" }
                             : &(Expected){ "port", ", free", FINE, NULL });
}
END_TEST

static const struct {
    const char *node; /* RUBATO_NODE */
    Expected expected[3];
} cluster_nodes[] = {
    { "RUBATO_NODE=3",
      { { "role", "node 3, one of 2, with 2 server threads and 1 worker", FINE, NULL },
        { "address", "127.0.0.1 (lo)", FINE, NULL },
        { "port", "any that is free", FINE, NULL } } },
    { "RUBATO_NODE=7", { { "address", ELSEWHERE ", which is no", FAILS, "its own host" } } },
    { "RUBATO_NODE=5", { { "role", "a node of a cluster file", FAILS, "RUBATO_NODE" } } },
    { "RUBATO_NODE=", { { "role", "a node of a cluster file", FAILS, "RUBATO_NODE" } } },
};

START_TEST(cluster_file_of_the_environment_is_read)
{
    g_autofree char *path = launch_write_file(
        "two.cfg",
        "cluster = { insecure = true; scheduler = { host = \"127.0.0.1\"; port = 9; node = 7; };\n"
        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; servers = 2; },\n"
        "{ id = 7; host = \"" ELSEWHERE "\"; port = 0; } ); };\n",
        0600);
    g_autofree char *file = g_strconcat("RUBATO_CLUSTER=", path, NULL);

    clear_variables();
    set_variables((const char *const[]){ file, cluster_nodes[_i].node, NULL });
    g_autoptr(GPtrArray) findings = rubato_launch_check_here();
    expect(findings, &(Expected){ "started by", file, FINE, NULL });
    for (size_t i = 0; i < 3 && cluster_nodes[_i].expected[i].name != NULL; i++)
        expect(findings, &cluster_nodes[_i].expected[i]);
}
END_TEST

/* ---- machines ---- */

static const struct {
    rlim_t limit;
    Expected expected;
} file_limits[] = {
    { 47, { "open files", "47 (ulimit -n; it may be raised to ", FAILS, "8 nodes take 48" } },
    { 48, { "open files", "enough for a run of 8 nodes", SHORT, "ulimit -n 112" } },
    { 112, { "open files", "enough for a run of 24 nodes", FINE, NULL } },
};

START_TEST(open_files_are_compared_with_the_size_of_the_run)
{
    g_autoptr(GPtrArray) findings = findings_new();
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = file_limits[_i].limit;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    machine_check(findings, "", &(MachineNeeds){ .n_nodes = 8 });
    expect(findings, &file_limits[_i].expected);
}
END_TEST

START_TEST(affinity_is_told_and_compared_with_the_threads)
{
    g_autoptr(GPtrArray) findings = findings_new();
    const int processor = sched_getcpu();
    g_autofree char *text = g_strdup_printf("of which this process may use 1 (%d)", processor);
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    machine_check(findings, "", &(MachineNeeds){ .n_threads = 2 });
    expect(findings, &(Expected){ "cores", text, SHORT, "2 workers or server threads" });
    g_ptr_array_set_size(findings, 0);
    machine_check(findings, "", &(MachineNeeds){ .n_threads = 1 });
    expect(findings, &(Expected){ "cores", text, FINE, NULL });
}
END_TEST

/* Files of a machine: the path, and what is in it. */
static const struct {
    const char *files[6][2];
    Expected memory, cores;
} machines[] = {
    { { { NULL } }, { "memory", "", FINE, NULL }, { "cores", "", FINE, NULL } },
    { { { "proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n" },
        { "proc/self/cgroup", "0::/a/b\n" } },
      { "memory", "8.0 GiB, 4.0 GiB of it available; the cgroup has no limit", FINE, NULL },
      { "cores", "", FINE, NULL } },
    { { { "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 204800 kB\n" } },
      { "memory", "200.0 MiB of it available", SHORT, "256 MiB" },
      { "cores", "", FINE, NULL } },
    /* version 2: the group above has the limit of memory */
    { { { "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n" },
        { "proc/self/cgroup", "0::/a/b\n" },
        { "sys/fs/cgroup/a/memory.max", "104857600\n" },
        { "sys/fs/cgroup/a/b/memory.max", "max\n" },
        { "sys/fs/cgroup/a/b/cpu.max", "50000 100000\n" } },
      { "memory", "the cgroup has a limit of 100.0 MiB", SHORT, "256 MiB" },
      { "cores", "the cgroup has the time of 0.5", FINE, NULL } },
    /* version 1, in a container that has the path of the host */
    { { { "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n" },
        { "proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n" },
        { "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n" },
        { "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n" },
        { "sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n" } },
      { "memory", "the cgroup has a limit of 1.0 GiB", FINE, NULL },
      { "cores", "the cgroup has the time of 1.5", FINE, NULL } },
    { { { "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n" },
        { "proc/self/cgroup", "4:memory:/\n3:cpu:/\n" },
        { "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n" },
        { "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n" },
        { "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n" } },
      { "memory", "the cgroup has no limit", FINE, NULL },
      { "cores", "", FINE, NULL } },
};

/* The machine's folder lies in that of the case. */
static void write_machine(size_t machine)
{
    for (size_t i = 0; i < 6 && machines[machine].files[i][0] != NULL; i++) {
        g_autofree char *path =
            g_build_filename(launch_folder, machines[machine].files[i][0], NULL);
        g_autofree char *folder = g_path_get_dirname(path);

        ck_assert_int_eq(g_mkdir_with_parents(folder, 0700), 0);
        ck_assert(g_file_set_contents(path, machines[machine].files[i][1], -1, NULL));
    }
}

START_TEST(limits_of_cgroups_are_found)
{
    g_autoptr(GPtrArray) findings = findings_new();

    write_machine((size_t)_i);
    machine_check(findings, launch_folder, &(MachineNeeds){ .n_threads = 1 });
    expect(findings, &machines[_i].memory);
    expect(findings, &machines[_i].cores);
    expect(findings, &(Expected){ "/dev/shm", "not there", FINE, NULL });
    expect(findings, &(Expected){ "locked memory", "(ulimit -l)", FINE, NULL });
}
END_TEST

START_TEST(a_quota_of_the_cgroup_counts_as_its_cores)
{
    g_autoptr(GPtrArray) findings = findings_new();

    write_machine(4);
    machine_check(findings, launch_folder, &(MachineNeeds){ .n_threads = 2 });
    expect(findings, &(Expected){ "cores", "the time of 1.5", SHORT, "2 workers" });
}
END_TEST

/* A limit for the size of files holds for anonymous memory, too. */
START_TEST(shared_memory_that_cannot_be_made_is_told)
{
    const bool needs_shm = _i == 1;
    g_autoptr(GPtrArray) findings = findings_new();
    struct rlimit usual, least;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    least = (struct rlimit){ 1000, usual.rlim_max };
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &least), 0);
    machine_check(findings, "", &(MachineNeeds){ .needs_shm = needs_shm });
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    expect(findings,
           needs_shm
               ? &(Expected){ "shared memory", "cannot be made", FAILS, "the transport \"tcp\"" }
               : &(Expected){ "shared memory", "cannot be made", SHORT, "talk TCP" });
}
END_TEST

/* ---- the program ---- */

/* Runs `rubato check` and perhaps a flag. Returns its exit code. */
static int run_check(const char *flag, char **out)
{
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "check", flag, NULL };
    int status;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, out,
                           NULL, &status, NULL));
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(program_exits_with_1_only_if_something_would_fail)
{
    g_autofree char *shorter = NULL, *failing = NULL;

    clear_variables();
    g_setenv("PMI_RANK", "0", TRUE);
    ck_assert_int_eq(run_check(NULL, &shorter), 0);
    ck_assert_msg(strstr(shorter, "               short: this MPI gives nodes no place") != NULL,
                  "%s", shorter);
    ck_assert_msg(strstr(shorter, "\n0 would fail, ") != NULL, "%s", shorter);
    g_setenv("RUBATO_ROLE", "worker", TRUE);
    ck_assert_int_eq(run_check(NULL, &failing), 1);
    ck_assert_msg(strstr(failing, "               fails: RUBATO_ROLE is worker") != NULL, "%s",
                  failing);
    ck_assert_msg(strstr(failing, "\n1 would fail, ") != NULL, "%s", failing);
}
END_TEST

START_TEST(program_prints_json)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autofree char *out = NULL;

    clear_variables();
    g_setenv("RUBATO_ROLE", "worker", TRUE);
    ck_assert_int_eq(run_check("--json", &out), 1);
    ck_assert_msg(json_parser_load_from_data(parser, out, -1, NULL), "%s", out);
    JsonObject *const object = json_node_get_object(json_parser_get_root(parser));
    JsonArray *const findings = json_object_get_array_member(object, "findings");
    JsonObject *const role = json_array_get_object_element(findings, 1);

    ck_assert_int_eq(json_object_get_int_member(object, "fails"), 1);
    ck_assert_str_eq(json_object_get_string_member(role, "name"), "role");
    ck_assert_str_eq(json_object_get_string_member(role, "state"), "fails");
    ck_assert_ptr_nonnull(strstr(json_object_get_string_member(role, "advice"), "HOST:PORT"));
    ck_assert(json_object_get_null_member(json_array_get_object_element(findings, 0), "advice"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher_here");
    TCase *place = launch_add_case(suite, "place");
    TCase *machine = launch_add_case(suite, "machine");
    TCase *program = launch_add_case(suite, "program");

    tcase_add_loop_test(place, environment_tells_what_a_program_would_be, 0,
                        G_N_ELEMENTS(environments));
    tcase_add_loop_test(place, machine_decides_which_threads_would_be_bound_where, 0,
                        G_N_ELEMENTS(bound));
    tcase_add_loop_test(place, port_of_the_scheduler_is_tried, 0, 2);
    tcase_add_loop_test(place, cluster_file_of_the_environment_is_read, 0,
                        G_N_ELEMENTS(cluster_nodes));
    tcase_add_loop_test(machine, open_files_are_compared_with_the_size_of_the_run, 0,
                        G_N_ELEMENTS(file_limits));
    tcase_add_test(machine, affinity_is_told_and_compared_with_the_threads);
    tcase_add_loop_test(machine, limits_of_cgroups_are_found, 0, G_N_ELEMENTS(machines));
    tcase_add_test(machine, a_quota_of_the_cgroup_counts_as_its_cores);
    tcase_add_loop_test(machine, shared_memory_that_cannot_be_made_is_told, 0, 2);
    tcase_add_test(program, program_exits_with_1_only_if_something_would_fail);
    tcase_add_test(program, program_prints_json);
    return run_suite(suite);
}
