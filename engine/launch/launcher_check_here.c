/* `rubato check` without a file: what a program would do here. It asks the same functions as an
 * engine that starts: the announcement of the environment, the announcer's addresses, the secret.
 *
 * Thread: the caller's. */
#include <errno.h>
#include <rubato/engine.h>
#include <string.h>
#include <unistd.h>

#include "engine/cluster/announcer.h"
#include "engine/cluster/host.h"
#include "engine/cluster/jobs/job_place.h"
#include "engine/cluster/own_address.h"
#include "engine/collectives/backend/tensor_backend.h"
#include "engine/launch/launcher_binding.h"
#include "engine/launch/launcher_findings.h"
#include "engine/launch/launcher_machine.h"
#include "io/net/transport/transport_ops.h"
#include "io/number_text.h"

typedef struct {
    GPtrArray *findings;
    Cluster *cluster; /* of RUBATO_CLUSTER; NULL: none */
    MachineNeeds needs;
    BindingNeeds binding;
} Check;

/* An empty variable is like none. */
static const char *variable(const char *name)
{
    const char *const text = g_getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static void add_failure(Check *check, const char *name, char *text, const GError *error)
{
    findings_add_fault(check->findings, name, text, RUBATO_FINDING_FAILS, g_strdup(error->message));
}

/* ---- who has started this process ---- */

/* What processes of MPI find in their environment, also those of unknown systems. */
static const struct {
    const char *name, *rank, *size;
} MPI_STARTERS[] = {
    { "mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
    { "mpiexec (PMI)", "PMI_RANK", "PMI_SIZE" },
    { "PMIx", "PMIX_RANK", NULL },
};

/* -1: none of them. */
static int find_mpi(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(MPI_STARTERS); i++)
        if (variable(MPI_STARTERS[i].rank) != NULL)
            return (int)i;
    return -1;
}

static char *describe_mpi(int starter)
{
    const char *const rank = variable(MPI_STARTERS[starter].rank);
    const char *const size =
        MPI_STARTERS[starter].size != NULL ? variable(MPI_STARTERS[starter].size) : NULL;

    return g_strdup_printf("%s, process %s%s%s", MPI_STARTERS[starter].name, rank,
                           size != NULL ? " of " : "", size != NULL ? size : "");
}

/* A step of Slurm has variables of PMI, too. (transfer full) */
static char *describe_system(void)
{
    const int mpi = find_mpi();
    JobPlace place;

    if (job_place_find(&place, NULL) && place.system != NULL)
        return g_strdup_printf("%s, process %u of %u", place.system, place.rank, place.size);
    if (variable("SLURM_STEP_ID") != NULL)
        return g_strdup("Slurm");
    if (mpi >= 0)
        return describe_mpi(mpi);
    return variable("SLURM_JOB_ID") != NULL
               ? g_strdup("Slurm, outside of a step: srun starts nodes")
               : NULL;
}

static void check_starter(Check *check)
{
    const char *const role = variable("RUBATO_ROLE");
    const char *const file = variable("RUBATO_CLUSTER");
    char *const system = describe_system();
    g_autoptr(GPtrArray) parts = g_ptr_array_new_with_free_func(g_free);

    if (system != NULL)
        g_ptr_array_add(parts, system);
    if (variable("KUBERNETES_SERVICE_HOST") != NULL)
        g_ptr_array_add(parts, g_strdup("Kubernetes"));
    if (role != NULL)
        g_ptr_array_add(parts, g_strconcat("RUBATO_ROLE=", role, NULL));
    if (file != NULL)
        g_ptr_array_add(parts, g_strconcat("RUBATO_CLUSTER=", file, NULL));
    if (parts->len == 0)
        g_ptr_array_add(parts, g_strdup("no job system, and no variables of Rubato"));
    g_ptr_array_add(parts, NULL);
    findings_add(check->findings, "started by", g_strjoinv("; ", (char **)parts->pdata));
}

/* ---- addresses, ports, transports, secrets: of all kinds of nodes ---- */

static void add_address(Check *check, const char *address, const char *more)
{
    g_autofree char *interface = own_interface_of(address);

    findings_add(check->findings, "address",
                 g_strdup_printf("%s (%s)%s", address,
                                 interface != NULL ? interface : "no interface", more));
}

static void try_port(Check *check, const char *what, const char *host_name, uint16_t port)
{
    Host host = { 0 };

    if (port == 0) {
        findings_add(check->findings, what, g_strdup("any that is free"));
        return;
    }
    if (!host_resolve(&host, host_name, "", NULL))
        return;
    const int fd = host_try_port(&host, port);
    const int failure = errno;
    host_clear(&host);
    if (fd >= 0) {
        close(fd);
        findings_add(check->findings, what, g_strdup_printf("%u, free", port));
        return;
    }
    findings_add_fault(check->findings, what,
                       g_strdup_printf("%u cannot be opened: %s", port, g_strerror(failure)),
                       RUBATO_FINDING_FAILS,
                       g_strdup(failure == EADDRINUSE
                                    ? "another program has it: end that one, or take another port"
                                    : "take another port"));
}

static void describe_transport(Check *check, const Cluster *cluster)
{
    const char *const far = cluster_far_transport(cluster);
    const bool shares = cluster_shares_memory_nearby(cluster);
    g_autoptr(GError) error = NULL;

    check->needs.uses_ucx = strcmp(far, "ucx") == 0;
    check->needs.needs_shm = strcmp(cluster->transport, "shm") == 0;
    g_autofree char *text = g_strdup_printf(
        "%s%s%s%s", shares ? "shm within a host, " : "", shares ? far : cluster->transport,
        shares ? " between hosts" : "", cluster->encrypt ? ", encrypted" : "");
    if (transport_find(far, &error) != NULL)
        findings_add(check->findings, "transport", g_steal_pointer(&text));
    else
        add_failure(check, "transport", g_steal_pointer(&text), error);
}

/* Only if they go another way than all else does. */
static void describe_collectives(Check *check, const Cluster *cluster)
{
    const uint32_t n_nodes = check->needs.n_nodes;
    g_autoptr(GError) error = NULL;

    if (strcmp(cluster->collectives, TENSOR_BACKEND_OWN) == 0 || n_nodes == 1)
        return;
    g_autofree char *text = g_strdup_printf("over %s", cluster->collectives);
    const TensorBackendOps *const backend = tensor_backend_find(cluster->collectives, &error);

    if (backend != NULL && (backend->check == NULL || backend->check(n_nodes, &error)))
        findings_add(check->findings, "collectives", g_steal_pointer(&text));
    else
        add_failure(check, "collectives", g_steal_pointer(&text), error);
}

static const char *describe_origin(SecretOrigin origin)
{
    static const char *const texts[] = {
        [SECRET_ORIGIN_NONE] = "none, and none is needed",
        [SECRET_ORIGIN_FROM_DESCRIPTOR] = "that of `rubato run`",
        [SECRET_ORIGIN_FROM_VARIABLE] = "that of RUBATO_SECRET",
        [SECRET_ORIGIN_FROM_FILE] = "that of secret_file",
    };

    return texts[origin];
}

static void add_secret(Check *check, SecretOrigin origin, const GError *error)
{
    if (error == NULL)
        findings_add(check->findings, "secret", g_strdup(describe_origin(origin)));
    else
        add_failure(check, "secret", g_strdup("none that this node may use"), error);
}

/* ---- a node without a cluster file ---- */

/* "1 server thread and 4 workers". (transfer full) */
static char *describe_threads(uint32_t servers, uint32_t workers)
{
    return g_strdup_printf("%u server thread%s and %u worker%s", servers, servers == 1 ? "" : "s",
                           workers, workers == 1 ? "" : "s");
}

static char *describe_role(const RubatoAnnouncement *announcement)
{
    g_autofree char *threads = describe_threads(announcement->servers, announcement->workers);
    g_autofree char *spares = announcement->spares > 0
                                  ? g_strdup_printf(" and %u spare place%s", announcement->spares,
                                                    announcement->spares == 1 ? "" : "s")
                                  : g_strdup("");

    switch (announcement->role) {
    case RUBATO_ROLE_SCHEDULER:
        return g_strdup_printf("the scheduler of %u servers and %u workers%s",
                               announcement->servers, announcement->workers, spares);
    case RUBATO_ROLE_SERVER:
        return g_strdup_printf("a server of %u thread%s", MAX(announcement->threads, 1),
                               announcement->threads > 1 ? "s" : "");
    case RUBATO_ROLE_WORKER:
        return g_strdup_printf("a worker node of %u worker%s", MAX(announcement->threads, 1),
                               announcement->threads > 1 ? "s" : "");
    case RUBATO_ROLE_NODE:
        return g_strdup_printf("node %u of %u%s, with %s", announcement->node, announcement->nodes,
                               spares, threads);
    case RUBATO_ROLE_NONE:
        break;
    }
    return g_strdup("a process of its own");
}

static void take_needs(Check *check, const RubatoAnnouncement *announcement)
{
    const uint32_t threads = MAX(announcement->threads, 1);

    check->binding.node.is_announced = true;
    switch (announcement->role) {
    case RUBATO_ROLE_SCHEDULER:
        check->needs.n_nodes =
            announcement->servers + announcement->workers + announcement->spares + 1;
        break;
    case RUBATO_ROLE_SERVER:
    case RUBATO_ROLE_WORKER:
        check->needs.n_threads = threads;
        check->binding.node.single = announcement->role == RUBATO_ROLE_SERVER
                                         ? (CoreUser){ .servers = threads }
                                         : (CoreUser){ .workers = threads };
        check->needs.n_nodes = 3; /* the least with such a node */
        break;
    case RUBATO_ROLE_NODE:
        check->needs.n_threads = MAX(announcement->servers, announcement->workers);
        check->needs.n_nodes = announcement->nodes + announcement->spares;
        check->binding.node.single = (CoreUser){ announcement->servers, announcement->workers };
        break;
    case RUBATO_ROLE_NONE:
        break;
    }
}

/* The name of a service may appear after the node has started. */
static void add_unknown_scheduler(Check *check, Announcer *announcer, const char *failure)
{
    findings_add_fault(check->findings, "scheduler",
                       g_strdup_printf("%s: %s", announcer->announcement->scheduler, failure),
                       RUBATO_FINDING_SHORT,
                       g_strdup_printf("the node looks again for %u s (rendezvous_ms): start the "
                                       "scheduler, or correct RUBATO_SCHEDULER",
                                       announcer->own->rendezvous_ms / 1000));
}

static bool find_addresses(Check *check, Announcer *announcer, GError **error)
{
    g_autofree char *failure = NULL;

    if (announcer_is_scheduler(announcer)) {
        if (!announcer_find_own_address(announcer, error))
            return false;
        findings_add(check->findings, "scheduler", g_strdup("this process"));
        return true;
    }
    if (!announcer_find_scheduler(announcer, &failure, error))
        return false;
    if (announcer->scheduler != NULL)
        findings_add(check->findings, "scheduler",
                     g_strdup_printf("%s, which is %s; not asked whether it is there",
                                     announcer->announcement->scheduler, announcer->scheduler));
    else
        add_unknown_scheduler(check, announcer, failure);
    return true;
}

static void check_announcer(Check *check, Announcer *announcer)
{
    g_auto(RunSecret) secret = { { 0 } };
    g_autoptr(GError) error = NULL;
    SecretOrigin origin;

    if (!announcer_split_scheduler(announcer, &error)) {
        add_failure(check, "scheduler", g_strdup(announcer->announcement->scheduler), error);
        return;
    }
    if (!announcer_read_settings(announcer, &error)) {
        add_failure(check, "settings", g_strdup(announcer->announcement->settings), error);
        return;
    }
    check->binding.is_asked = announcer->own->bind_cores || announcer->own->numa;
    check->binding.numa = announcer->own->numa;
    describe_transport(check, announcer->own);
    describe_collectives(check, announcer->own);
    if (!find_addresses(check, announcer, &error)) {
        add_failure(check, "address", g_strdup("none at which this node could receive"), error);
        return;
    }
    if (announcer->address == NULL)
        return;
    add_address(check, announcer->address, "");
    if (announcer_is_scheduler(announcer)) {
        if (strcmp(announcer->listens, announcer->address) != 0)
            findings_add(check->findings, "nodes meet at", g_strdup(announcer->listens));
        try_port(check, "port", announcer->listens, announcer->port);
    }
    announcer_find_secret(announcer, &secret, &origin, &error);
    add_secret(check, origin, error);
}

/* ---- a process of its own ---- */

/* The job system meant more, perhaps. NULL: it did not. */
static char *advise_alone(void)
{
    const int mpi = find_mpi();
    JobPlace place;

    if (variable("RUBATO_ROLE") != NULL || (job_place_find(&place, NULL) && place.system != NULL))
        return NULL;
    if (mpi >= 0)
        return g_strdup_printf(
            "this MPI gives nodes no place, so each process runs alone: set RUBATO_ROLE=node, "
            "RUBATO_NODE=$%s, RUBATO_NODES%s%s and RUBATO_SCHEDULER=HOST:PORT of process 0",
            MPI_STARTERS[mpi].rank, MPI_STARTERS[mpi].size != NULL ? "=$" : "",
            MPI_STARTERS[mpi].size != NULL ? MPI_STARTERS[mpi].size : "");
    if (variable("KUBERNETES_SERVICE_HOST") != NULL)
        return g_strdup_printf(
            "Kubernetes gives nodes no place: set RUBATO_ROLE and RUBATO_SCHEDULER%s",
            variable("JOB_COMPLETION_INDEX") != NULL
                ? " (of an indexed Job: RUBATO_ROLE=node, RUBATO_NODE=$JOB_COMPLETION_INDEX, "
                  "RUBATO_NODES)"
                : "");
    return NULL;
}

static void check_alone(Check *check)
{
    check->binding.node.single = (CoreUser){ .servers = 1, .workers = 1 };

    g_autofree char *outward = own_address_outward();
    char *const advice = advise_alone();

    findings_add_fault(check->findings, "role", g_strdup("a process of its own"),
                       advice != NULL ? RUBATO_FINDING_SHORT : RUBATO_FINDING_FINE, advice);
    add_address(check, outward, ", if this were a node");
    findings_add(check->findings, "transport", g_strdup("none: one process sends nothing"));
}

/* ---- a node of a cluster file ---- */

static const ClusterNode *find_node(const Cluster *cluster, GError **error)
{
    const char *const text = variable("RUBATO_NODE");
    uint64_t id;

    if (text != NULL && number_text_read(text, 0, CLUSTER_MAX_NODE_ID, &id)) {
        const ClusterNode *const node = cluster_find(cluster, (uint32_t)id, NULL);
        if (node != NULL)
            return node;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "set RUBATO_NODE to one of the ids of %s; `rubato run` does", cluster->path);
    return NULL;
}

static void check_host(Check *check, const Cluster *cluster, const char *name)
{
    g_autoptr(GError) error = NULL;
    Host host = { 0 };

    if (!host_resolve(&host, name, "RUBATO_CLUSTER", &error)) {
        findings_add_fault(check->findings, "address", g_strdup(error->message),
                           RUBATO_FINDING_SHORT,
                           g_strdup_printf("the node looks again for %u s (rendezvous_ms)",
                                           cluster->rendezvous_ms / 1000));
        return;
    }
    g_autofree char *address = host_describe(&host);
    if (host.local)
        add_address(check, address, "");
    else
        findings_add_fault(check->findings, "address",
                           g_strdup_printf("%s, which is no address of this machine", address),
                           RUBATO_FINDING_FAILS,
                           g_strdup("start this node on its own host, or correct the host"));
    host_clear(&host);
}

static void check_cluster_node(Check *check, const Cluster *cluster, const ClusterNode *node)
{
    g_auto(RunSecret) secret = { { 0 } };
    g_autoptr(GError) error = NULL;
    SecretOrigin origin;

    check->binding =
        (BindingNeeds){ .node = { .cluster = cluster, .number = (uint32_t)(node - cluster->nodes) },
                        .is_asked = cluster->bind_cores || cluster->numa,
                        .numa = cluster->numa };
    check->needs.n_nodes = cluster->n_nodes;
    check->needs.n_threads = MAX(node->servers, node->workers);
    g_autofree char *threads = describe_threads(node->servers, node->workers);
    findings_add(
        check->findings, "role",
        g_strdup_printf("node %u, one of %u, with %s", node->id, cluster->n_nodes, threads));
    describe_transport(check, cluster);
    describe_collectives(check, cluster);
    check_host(check, cluster, node->host);
    try_port(check, "port", node->host, node->port);
    if (node == &cluster->nodes[cluster->scheduler_node])
        try_port(check, "scheduler port", cluster->scheduler_host, cluster->scheduler_port);
    if (secret_find(cluster, &secret, &origin, &error))
        secret_check_cluster(cluster, origin, &error);
    add_secret(check, origin, error);
}

static void check_cluster_file(Check *check, const char *path)
{
    g_autoptr(GError) error = NULL;
    const ClusterNode *node;

    check->cluster = cluster_read(path, &error);
    node = check->cluster != NULL ? find_node(check->cluster, &error) : NULL;
    if (node != NULL)
        check_cluster_node(check, check->cluster, node);
    else
        add_failure(check, "role", g_strdup("a node of a cluster file"), error);
}

/* ---- all ---- */

static void check_place(Check *check)
{
    const char *const file = variable("RUBATO_CLUSTER");
    g_autoptr(GError) error = NULL;
    RubatoAnnouncement announcement;

    if (!rubato_announcement_from_environment(&announcement, &error)) {
        add_failure(check, "role",
                    g_strdup("none: the environment contradicts itself, or lacks "
                             "something"),
                    error);
        return;
    }
    if (announcement.role != RUBATO_ROLE_NONE) {
        Announcer announcer = { .announcement = &announcement };

        findings_add(check->findings, "role", describe_role(&announcement));
        take_needs(check, &announcement);
        check_announcer(check, &announcer);
        announcer_clear(&announcer);
    } else if (file != NULL) {
        check_cluster_file(check, file);
    } else {
        check_alone(check);
    }
}

GPtrArray *rubato_launch_check_here(void)
{
    Check check = { .findings = findings_new() };

    check_starter(&check);
    check_place(&check);
    machine_check(check.findings, "", &check.needs);
    binding_check(check.findings, &check.binding);
    cluster_free(check.cluster);
    return check.findings;
}
