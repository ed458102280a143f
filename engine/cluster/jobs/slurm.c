/* A step of Slurm (`srun`): what its variables say.
 *
 * The batch script of a job has many of these variables too, but no step, so it is a process of its
 * own.
 *
 * Runs as job_place.h says. */
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/jobs/job_environment.h"
#include "engine/cluster/jobs/job_place.h"
#include "engine/cluster/jobs/job_port.h"
#include "engine/cluster/jobs/slurm_hosts.h"
#include "io/number_text.h"

static const JobStarter STARTER = { "this is a step of Slurm", "srun" };

/* The ports that `srun --resv-ports` has reserved for this step, or one that few steps share. */
static uint16_t find_port(const char *step)
{
    const char *const reserved = g_getenv("SLURM_STEP_RESV_PORTS");
    const char *const job = g_getenv("SLURM_JOB_ID");
    uint64_t port;

    if (reserved != NULL) {
        g_autofree char *first = g_strndup(reserved, strcspn(reserved, "-,"));
        if (number_text_read(first, 1, UINT16_MAX, &port))
            return (uint16_t)port;
    }
    g_autofree char *text = g_strdup_printf("%s.%s", job != NULL ? job : "", step);
    return job_port_of(text);
}

/* Slurm puts task 0 on the first host, unless it was told how to arrange them. */
static bool find_host(JobPlace *place, uint32_t n_hosts, GError **error)
{
    const char *const hosts = g_getenv("SLURM_STEP_NODELIST");
    const char *const order = g_getenv("SLURM_DISTRIBUTION");
    g_autofree char *first = hosts != NULL ? slurm_first_host(hosts) : NULL;

    if (n_hosts == 1) { /* they need no network */
        place->host = "127.0.0.1";
        return true;
    }
    if (first != NULL && (order == NULL || !g_str_has_prefix(order, "arbitrary"))) {
        place->host = g_intern_string(first);
        return true;
    }
    if (g_getenv("RUBATO_SCHEDULER") != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "this is a step of Slurm, and %s, so nobody knows where task 0 runs; set "
                "RUBATO_SCHEDULER=HOST:PORT to where it does",
                first == NULL ? "SLURM_STEP_NODELIST does not name its hosts"
                              : "its tasks are arranged arbitrarily");
    return false;
}

static bool find(JobPlace *place, GError **error)
{
    const char *const step = g_getenv("SLURM_STEP_ID");
    const char *const cpus = g_getenv("SLURM_CPUS_PER_TASK");
    const char *const parts = g_getenv("SLURM_HET_SIZE");
    JobPlace found = { .system = "Slurm" };
    uint32_t n_hosts;
    uint64_t n_cpus;

    if (step == NULL || g_getenv("SLURM_PROCID") == NULL)
        return true;
    if (parts != NULL && strcmp(parts, "1") != 0 && g_getenv("RUBATO_SCHEDULER") == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "this is a step of a job of Slurm with %s components, whose processes do not "
                    "know one another; start each of them as one of the roles scheduler, server "
                    "and worker, with RUBATO_SCHEDULER=HOST:PORT, or set RUBATO_ROLE=alone",
                    parts);
        return false;
    }
    if (!job_read_number(&STARTER, "SLURM_STEP_NUM_TASKS", 1, CLUSTER_MAX_NODES, &found.size,
                         error) ||
        !job_read_number(&STARTER, "SLURM_PROCID", 0, found.size - 1, &found.rank, error) ||
        !job_read_number(&STARTER, "SLURM_STEP_NUM_NODES", 1, UINT32_MAX, &n_hosts, error) ||
        !find_host(&found, n_hosts, error))
        return false;
    if (cpus != NULL && number_text_read(cpus, 1, CLUSTER_MAX_THREADS, &n_cpus))
        found.workers = (uint32_t)n_cpus;
    found.port = find_port(step);
    *place = found;
    return true;
}

const JobSystem job_system_slurm = { .name = "Slurm", .find = find };
