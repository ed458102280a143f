/* What the environment says of a node that has no cluster file: the variables of Rubato, and what
 * the job system says that has started the process.
 *
 * Runs on the thread of the engine's calls, before there are others. */
#include <rubato/engine.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/jobs/job_place.h"
#include "engine/cluster/nearest_word.h"
#include "io/number_text.h"

/* In the order of RubatoRole, which has a role less. */
static const char *const ROLES[] = { "scheduler", "server", "worker", "node", "alone", NULL };

#define ROLE_ALONE ((RubatoRole)(RUBATO_ROLE_NODE + 1)) /* no other node, whatever starts it */

static bool refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static bool refuse(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, text);
    return false;
}

/* An empty variable is like none: a container's description may leave it empty. */
static const char *variable(const char *name)
{
    const char *const text = g_getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static bool read_role(const char *text, RubatoRole *role, GError **error)
{
    for (size_t i = 0; ROLES[i] != NULL; i++)
        if (strcmp(text, ROLES[i]) == 0) {
            *role = (RubatoRole)(i + 1);
            return true;
        }
    const char *const meant = nearest_word(text, ROLES);
    return refuse(error,
                  "RUBATO_ROLE is \"%.40s\", a role that there is not; the roles are scheduler, "
                  "server, worker, node and alone%s%s%s",
                  text, meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "",
                  meant != NULL ? "?" : "");
}

/* A number that may be left out. */
static bool read_number(const char *name, uint32_t lowest, uint32_t highest, uint32_t *number,
                        GError **error)
{
    const char *const text = variable(name);
    uint64_t value;

    if (text == NULL)
        return true;
    if (!number_text_read(text, lowest, highest, &value))
        return refuse(error, "%s is \"%.40s\"; it has to be a number from %u to %u", name, text,
                      lowest, highest);
    *number = (uint32_t)value;
    return true;
}

static bool check(const RubatoAnnouncement *announcement, GError **error)
{
    if (announcement->scheduler == NULL)
        return refuse(error,
                      "RUBATO_ROLE is %s, but where the scheduler listens is not said; set "
                      "RUBATO_SCHEDULER=HOST:PORT, the same for all nodes",
                      ROLES[announcement->role - 1]);
    if (announcement->role != RUBATO_ROLE_SCHEDULER)
        return true;
    if (variable("RUBATO_SERVERS") == NULL || variable("RUBATO_WORKERS") == NULL)
        return refuse(error,
                      "the scheduler waits for servers and workers, and %s does not say for "
                      "how many; set RUBATO_SERVERS and RUBATO_WORKERS",
                      variable("RUBATO_SERVERS") == NULL ? "RUBATO_SERVERS" : "RUBATO_WORKERS");
    const uint32_t n = announcement->servers + announcement->workers + announcement->spares;
    if (n >= CLUSTER_MAX_NODES)
        return refuse(error,
                      "RUBATO_SERVERS%s RUBATO_WORKERS%s make %u nodes together; the most "
                      "is %u, beside the scheduler",
                      announcement->spares > 0 ? "," : " and",
                      announcement->spares > 0 ? " and RUBATO_SPARES" : "", n,
                      CLUSTER_MAX_NODES - 1);
    return true;
}

static bool read_role_variables(RubatoAnnouncement *found, GError **error)
{
    return read_number("RUBATO_SERVERS", 1, CLUSTER_MAX_NODES, &found->servers, error) &&
           read_number("RUBATO_WORKERS", 0, CLUSTER_MAX_NODES, &found->workers, error) &&
           read_number("RUBATO_THREADS", 1, CLUSTER_MAX_THREADS, &found->threads, error) &&
           read_number("RUBATO_NODE", 1, CLUSTER_MAX_NODES, &found->node, error) &&
           read_number("RUBATO_SPARES", 0, CLUSTER_MAX_NODES, &found->spares, error) &&
           check(found, error);
}

/* ---- equal nodes ---- */

/* "HOST:PORT", where rank 0 of the job system listens; NULL: it does not say. Interned. */
static const char *scheduler_of(const JobPlace *place, uint32_t port)
{
    const bool is_v6 = place->host != NULL && strchr(place->host, ':') != NULL;

    if (place->host == NULL)
        return NULL;
    g_autofree char *text =
        g_strdup_printf("%s%s%s:%u", is_v6 ? "[" : "", place->host, is_v6 ? "]" : "", port);
    return g_intern_string(text);
}

static bool check_node(const RubatoAnnouncement *announcement, GError **error)
{
    g_autofree char *systems = job_place_systems();

    if (announcement->nodes == 0)
        return refuse(error,
                      "no job system (%s) has started this process, so nobody says which node it "
                      "is, and of how many; set RUBATO_NODE, RUBATO_NODES and RUBATO_SCHEDULER, "
                      "or start it with srun or mpirun",
                      systems);
    if (announcement->nodes + announcement->spares > CLUSTER_MAX_NODES)
        return refuse(error,
                      "RUBATO_NODES and RUBATO_SPARES make %u nodes together; the most is %u",
                      announcement->nodes + announcement->spares, CLUSTER_MAX_NODES);
    if (announcement->node >= announcement->nodes + announcement->spares)
        return refuse(error,
                      "RUBATO_NODE is %u, and RUBATO_NODES %u: the nodes of a run of %u are 0 to "
                      "%u%s",
                      announcement->node, announcement->nodes, announcement->nodes,
                      announcement->nodes - 1,
                      announcement->spares == 0
                          ? ", unless RUBATO_SPARES says that others may come as new ones"
                          : ", and those that come as new ones (RUBATO_SPARES) have the next ids");
    return check(announcement, error);
}

/* The variables of Rubato come first: a job system may know less than who writes them. */
static bool read_node_variables(const JobPlace *place, RubatoAnnouncement *found, GError **error)
{
    uint32_t port = place->port;

    found->nodes = place->size;
    found->node = place->rank;
    found->servers = 1;
    found->workers = MAX(place->workers, 1);
    if (!read_number("RUBATO_PORT", 1, UINT16_MAX, &port, error) ||
        !read_number("RUBATO_NODES", 1, CLUSTER_MAX_NODES, &found->nodes, error) ||
        !read_number("RUBATO_NODE", 0, CLUSTER_MAX_NODES, &found->node, error) ||
        !read_number("RUBATO_SPARES", 0, CLUSTER_MAX_NODES, &found->spares, error) ||
        !read_number("RUBATO_SERVERS", 0, CLUSTER_MAX_THREADS, &found->servers, error) ||
        !read_number("RUBATO_WORKERS", 0, CLUSTER_MAX_THREADS, &found->workers, error))
        return false;
    if (found->scheduler == NULL)
        found->scheduler = scheduler_of(place, port);
    return check_node(found, error);
}

/* ---- all ---- */

/* Whether RUBATO_ROLE and other variables contradict each other. */
static bool check_role(RubatoRole role, GError **error)
{
    if (role == RUBATO_ROLE_NONE && variable("RUBATO_SCHEDULER") != NULL &&
        variable("RUBATO_CLUSTER") == NULL)
        return refuse(error, "RUBATO_SCHEDULER says where a scheduler listens, but not what this "
                             "process is; set RUBATO_ROLE to scheduler, server, worker or node");
    if (role != RUBATO_ROLE_NONE && role != ROLE_ALONE && variable("RUBATO_CLUSTER") != NULL)
        return refuse(error, "RUBATO_ROLE and RUBATO_CLUSTER are both set: a run has a cluster "
                             "file, or its nodes announce themselves; unset one of them");
    return true;
}

/* Finds out what the process is, and where it is if a job system says so. */
static bool find_role(RubatoRole *role, JobPlace *place, GError **error)
{
    const char *const text = variable("RUBATO_ROLE");

    *place = (JobPlace){ .system = NULL };
    if (text != NULL && !read_role(text, role, error))
        return false;
    if ((text == NULL && variable("RUBATO_CLUSTER") == NULL) || *role == RUBATO_ROLE_NODE) {
        if (!job_place_find(place, error))
            return false;
        if (text == NULL && place->size > 1)
            *role = RUBATO_ROLE_NODE;
    }
    return true;
}

bool rubato_announcement_from_environment(RubatoAnnouncement *announcement, GError **error)
{
    RubatoAnnouncement found = { .role = RUBATO_ROLE_NONE };
    JobPlace place;

    g_return_val_if_fail(announcement != NULL, false);
    if (!find_role(&found.role, &place, error) || !check_role(found.role, error))
        return false;
    if (found.role == ROLE_ALONE)
        found.role = RUBATO_ROLE_NONE;
    if (found.role != RUBATO_ROLE_NONE) {
        found.scheduler = variable("RUBATO_SCHEDULER");
        found.interface = variable("RUBATO_INTERFACE");
        found.settings = variable("RUBATO_SETTINGS");
        if (found.role == RUBATO_ROLE_NODE ? !read_node_variables(&place, &found, error)
                                           : !read_role_variables(&found, error))
            return false;
    }
    *announcement = found;
    return true;
}
