/* A process that Hydra, the mpiexec of MPICH, has started: what its variables and PMI-1 say.
 *
 * PMI-1 is lines of text, over a descriptor that the variable PMI_FD names. Hydra ends the other
 * processes if the descriptor of one of them is closed before it has sent "cmd=finalize", and then
 * closes its own end. So a process asks once, and the answer is kept in its environment. MPI itself
 * cannot begin in this process any more.
 *
 * Runs as job_place.h says. */
#include <errno.h>
#include <poll.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/jobs/job_environment.h"
#include "engine/cluster/jobs/job_place.h"
#include "engine/cluster/jobs/job_port.h"
#include "engine/cluster/own_address.h"

enum {
    MAX_LINE = 4096,         /* of an answer: one key and value of at most 1 KB each */
    ANSWER_MS = 10 * 1000,   /* what a proxy on this host may take */
    BARRIER_MS = 300 * 1000, /* until all processes have started, as rendezvous_ms */
};

#define HOST_KEY "rubato-host"

static const JobStarter STARTER = { "mpiexec has started this process", "mpiexec" };

static bool refuse(GError **error, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "%s, but %s; set RUBATO_SCHEDULER=HOST:PORT to where process 0 runs, or "
                "RUBATO_ROLE=alone for a process of its own",
                STARTER.started, why);
    return false;
}

static bool send_line(int fd, const char *line, GError **error)
{
    size_t length = strlen(line);

    while (length > 0) {
        const ssize_t n = send(fd, line, length, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return refuse(error, g_strerror(errno));
        line += n;
        length -= (size_t)n;
    }
    return true;
}

/* Reads one byte after the other: what follows the line is for others. */
static bool receive_line(int fd, int64_t wait_ms, GString *line, GError **error)
{
    const int64_t end = g_get_monotonic_time() + wait_ms * 1000;
    char byte = '\0';

    g_string_truncate(line, 0);
    while (byte != '\n' && line->len < MAX_LINE) {
        const int64_t left_ms = (end - g_get_monotonic_time()) / 1000;
        struct pollfd one = { .fd = fd, .events = POLLIN };
        const int n_ready = poll(&one, 1, (int)MAX(left_ms, 0));

        if (n_ready < 0 && errno == EINTR)
            continue;
        if (n_ready == 0)
            return refuse(error, wait_ms == BARRIER_MS ? "not all processes ask for their place"
                                                       : "it does not answer");
        if (n_ready < 0 || read(fd, &byte, 1) != 1)
            return refuse(error, "it has closed the connection");
        if (byte != '\n')
            g_string_append_c(line, byte);
    }
    return true;
}

/* The value of a field of an answer: "cmd=get_result rc=0 value=node7". (transfer full) */
static char *find_field(const char *line, const char *name)
{
    g_auto(GStrv) fields = g_strsplit(line, " ", -1);
    const size_t length = strlen(name);

    for (char **field = fields; *field != NULL; field++)
        if (strncmp(*field, name, length) == 0 && (*field)[length] == '=')
            return g_strdup(*field + length + 1);
    return NULL;
}

/* Sends a line and waits for the answer. *value: one of its fields. An answer whose field rc is not
 * 0 is a refusal, even if it has a value. (transfer full) */
static bool ask(int fd, int64_t wait_ms, const char *field, char **value, GError **error,
                const char *format, ...) G_GNUC_PRINTF(6, 7);

static bool ask(int fd, int64_t wait_ms, const char *field, char **value, GError **error,
                const char *format, ...)
{
    g_autoptr(GString) answer = g_string_new(NULL);
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *line = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (!send_line(fd, line, error) || !receive_line(fd, wait_ms, answer, error))
        return false;
    g_autofree char *status = find_field(answer->str, "rc");
    if (status == NULL || strcmp(status, "0") == 0)
        *value = find_field(answer->str, field);
    if (*value == NULL) {
        g_autofree char *why = g_strdup_printf("it answers \"%.80s\"", answer->str);
        return refuse(error, why);
    }
    return true;
}

/* The interface that RUBATO_INTERFACE names, or the first that leads out. (transfer full) */
static char *find_own_host(GError **error)
{
    const char *const interface = g_getenv("RUBATO_INTERFACE");

    return interface != NULL && *interface != '\0' ? own_address_of(interface, error)
                                                   : own_address_outward();
}

/* Process 0 puts its address, and all get it. The wait in the barrier ends: Hydra kills all
 * processes if one of them dies, and one that lives but never asks is named by the timeout. */
static bool exchange_host(int fd, const char *space, uint32_t rank, char **host, GError **error)
{
    g_autofree char *put = NULL;
    g_autofree char *barrier = NULL;

    if (rank == 0) {
        g_autofree char *own = find_own_host(error);

        if (own == NULL || !ask(fd, ANSWER_MS, "rc", &put, error,
                                "cmd=put kvsname=%s key=" HOST_KEY " value=%s\n", space, own))
            return false;
    }
    return ask(fd, BARRIER_MS, "cmd", &barrier, error, "cmd=barrier_in\n") &&
           ask(fd, ANSWER_MS, "value", host, error, "cmd=get kvsname=%s key=" HOST_KEY "\n", space);
}

/* The name of the job's space, and where rank 0 runs. Processes of one host need no network.
 * (transfer full) */
static char *ask_all(int fd, uint32_t rank, bool is_one_host, GError **error)
{
    g_autofree char *space = NULL;
    g_autofree char *host = is_one_host ? g_strdup("127.0.0.1") : NULL;
    g_autofree char *end = NULL;

    if (!ask(fd, ANSWER_MS, "kvsname", &space, error, "cmd=get_my_kvsname\n") ||
        (host == NULL && !exchange_host(fd, space, rank, &host, error)) ||
        !ask(fd, ANSWER_MS, "cmd", &end, error, "cmd=finalize\n"))
        return NULL;
    return g_strdup_printf("%s %s", space, host);
}

/* No two sockets of a machine that are open have the same number. (transfer full) */
static char *find_job(int fd, GError **error)
{
    struct stat status;

    if (fstat(fd, &status) != 0) {
        refuse(error, "the descriptor that PMI_FD names is not open");
        return NULL;
    }
    return g_strdup_printf("%" G_GUINT64_FORMAT, (uint64_t)status.st_ino);
}

static bool find_scheduler(JobPlace *place, int fd, bool is_one_host, GError **error)
{
    g_autofree char *job = find_job(fd, error);
    bool has_begun;

    if (job == NULL)
        return false;
    if (job_uses_mpi(&has_begun))
        return refuse(error, "the program uses MPI itself, and Hydra answers but one of the two");
    if (job_recall(job) == NULL) {
        g_autofree char *answer = ask_all(fd, place->rank, is_one_host, error);

        if (answer == NULL)
            return false;
        job_remember(job, answer);
    }
    g_auto(GStrv) parts = g_strsplit(job_recall(job), " ", 2);
    place->port = job_port_of(parts[0]);
    place->host = parts[1] != NULL ? g_intern_string(parts[1]) : NULL;
    return true;
}

static bool find(JobPlace *place, GError **error)
{
    JobPlace found = { .system = "MPICH" };
    uint32_t fd, n_local;

    if (g_getenv("MPI_LOCALNRANKS") == NULL || g_getenv("PMI_FD") == NULL)
        return true;
    if (!job_read_number(&STARTER, "PMI_SIZE", 1, CLUSTER_MAX_NODES, &found.size, error) ||
        !job_read_number(&STARTER, "PMI_RANK", 0, found.size - 1, &found.rank, error) ||
        !job_read_number(&STARTER, "MPI_LOCALNRANKS", 1, found.size, &n_local, error) ||
        !job_read_number(&STARTER, "PMI_FD", 0, INT32_MAX, &fd, error))
        return false;
    if (found.size > 1 && g_getenv("RUBATO_SCHEDULER") == NULL &&
        !find_scheduler(&found, (int)fd, n_local == found.size, error))
        return false;
    *place = found;
    return true;
}

const JobSystem job_system_hydra = { .name = "MPICH", .find = find };
