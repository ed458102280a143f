/* What the environment says of a node that has no cluster file.
 *
 * Runs on the thread of the engine's calls, before there are others. */
#include <rubato/engine.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/nearest_word.h"
#include "io/number_text.h"

static const char *const ROLES[] = { "scheduler", "server", "worker", NULL };

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
                  "server and worker%s%s%s",
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
    if (announcement->servers + announcement->workers >= CLUSTER_MAX_NODES)
        return refuse(error,
                      "RUBATO_SERVERS and RUBATO_WORKERS make %u nodes together; the most "
                      "is %u, beside the scheduler",
                      announcement->servers + announcement->workers, CLUSTER_MAX_NODES - 1);
    return true;
}

bool rubato_announcement_from_environment(RubatoAnnouncement *announcement, GError **error)
{
    const char *const role = variable("RUBATO_ROLE");
    RubatoAnnouncement found = { .role = RUBATO_ROLE_NONE };

    g_return_val_if_fail(announcement != NULL, false);
    if (role == NULL && variable("RUBATO_SCHEDULER") != NULL && variable("RUBATO_CLUSTER") == NULL)
        return refuse(error, "RUBATO_SCHEDULER says where a scheduler listens, but not what this "
                             "process is; set RUBATO_ROLE to scheduler, server or worker");
    if (role != NULL && variable("RUBATO_CLUSTER") != NULL)
        return refuse(error, "RUBATO_ROLE and RUBATO_CLUSTER are both set: a run has a cluster "
                             "file, or its nodes announce themselves; unset one of them");
    if (role != NULL) {
        found.scheduler = variable("RUBATO_SCHEDULER");
        found.interface = variable("RUBATO_INTERFACE");
        found.settings = variable("RUBATO_SETTINGS");
        if (!read_role(role, &found.role, error) ||
            !read_number("RUBATO_SERVERS", 1, CLUSTER_MAX_NODES, &found.servers, error) ||
            !read_number("RUBATO_WORKERS", 0, CLUSTER_MAX_NODES, &found.workers, error) ||
            !read_number("RUBATO_THREADS", 1, CLUSTER_MAX_THREADS, &found.threads, error) ||
            !read_number("RUBATO_NODE", 1, CLUSTER_MAX_NODES, &found.node, error) ||
            !check(&found, error))
            return false;
    }
    *announcement = found;
    return true;
}
