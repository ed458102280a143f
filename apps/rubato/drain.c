/* The command `rubato drain`. */
#include "apps/rubato/drain.h"

#include <rubato/launcher.h>
#include <stdlib.h>

#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "Takes a node out of a run that goes on: its parts go to the other nodes while they train,\n"
    "and then its process ends, with exit code 0. If it has workers in a task, it ends when\n"
    "they have. All tables with parts there need replicas, other nodes need room for these,\n"
    "and the scheduler must not run there. FILE is the cluster file of the run; without it, it\n"
    "is that of RUBATO_CLUSTER, or the run has none, and RUBATO_SCHEDULER says where its\n"
    "scheduler is. The run's secret comes from --secret-file, RUBATO_SECRET or the file.";

static const char DESCRIPTION[] =
    "The exit code is 0 if the node has left, or is drained and ends when its workers have; 1 if\n"
    "it keeps its parts, or nobody answers; and 2 for a wrong command line.\n"
    "\n"
    "Example: rubato drain trio.cfg 2";

GOptionContext *drain_new_context(DrainOptions *options)
{
    const GOptionEntry entries[] = {
        { "secret-file", 0, 0, G_OPTION_ARG_FILENAME, &options->secret_file,
          "The secret of the run (default: RUBATO_SECRET, or that of FILE)", "FILE" },
        { "timeout", 0, 0, G_OPTION_ARG_DOUBLE, &options->timeout_s,
          "Give up after so many seconds without an answer (default: 10)", "SECONDS" },
        G_OPTION_ENTRY_NULL
    };

    return usage_new_context("[FILE] NODE", entries, SUMMARY, DESCRIPTION);
}

/* An empty variable is like none. */
static const char *variable(const char *name)
{
    const char *const text = g_getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static int drain(const RubatoLaunchDrain *asked)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *told = NULL;

    if (rubato_launch_drain(asked, &told, &error)) {
        g_print("%s\n", told);
        return EXIT_SUCCESS;
    }
    g_printerr("rubato drain: %s\n", error->message);
    return EXIT_FAILURE;
}

static int run(const DrainOptions *options, int argc, char **argv)
{
    RubatoLaunchDrain asked = { .secret_file = options->secret_file };
    guint64 id;

    if (!usage_takes_wait("drain", "--timeout", options->timeout_s))
        return EXIT_USAGE;
    if (argc != 2 && argc != 3)
        return fail_usage("drain", "which node? rubato drain [FILE] NODE");
    if (!g_ascii_string_to_unsigned(argv[argc - 1], 10, 0, G_MAXUINT32, &id, NULL)) {
        g_autofree char *message =
            g_strdup_printf("NODE is the id of a node, not '%s'", argv[argc - 1]);
        return fail_usage("drain", message);
    }
    asked.node = (uint32_t)id;
    asked.timeout_ms = (uint32_t)MAX(options->timeout_s * 1e3, 1);
    asked.cluster_file = argc == 3 ? argv[1] : variable("RUBATO_CLUSTER");
    if (asked.cluster_file == NULL) {
        asked.scheduler = variable("RUBATO_SCHEDULER");
        asked.settings = variable("RUBATO_SETTINGS");
    }
    if (asked.cluster_file == NULL && asked.scheduler == NULL)
        return fail_usage("drain", "of which run? rubato drain FILE NODE, or set RUBATO_CLUSTER or "
                                   "RUBATO_SCHEDULER");
    return drain(&asked);
}

int drain_command(int argc, char **argv)
{
    DrainOptions options = { .timeout_s = USUAL_TIMEOUT_S };
    g_autoptr(GOptionContext) context = drain_new_context(&options);
    g_autoptr(GError) error = NULL;
    const int code = g_option_context_parse(context, &argc, &argv, &error)
                         ? run(&options, argc, argv)
                         : fail_usage("drain", error->message);

    g_free(options.secret_file);
    return code;
}
