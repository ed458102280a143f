/* `rubato scheduler`, `server`, `worker` and `task`: the process becomes one node of a run that has
 * no cluster file.
 *
 * Thread: main's. */
#include "apps/rubato/roles.h"

#include <rubato/launcher.h>
#include <string.h>

#include "apps/rubato/usage.h"

static const char ROLE_SUMMARY[] =
    "Becomes PROGRAM, as one node of a run that has no cluster file: the scheduler, a server\n"
    "that holds parts of tables, or a worker. Servers and workers announce themselves to the\n"
    "scheduler, in any order; the run begins once as many are there as it was told. Each option\n"
    "sets a variable of the environment; where it is not given, the variable itself counts. So a\n"
    "container needs variables alone, and RUBATO_ROLE with them does the same for PROGRAM.";

static const char ROLE_DESCRIPTION[] =
    "Unless all nodes are on this machine, they need the same secret, in RUBATO_SECRET or in a\n"
    "file (--settings 'secret_file = \"FILE\";'), which `rubato secret FILE` makes.\n"
    "\n"
    "Example: one server and two workers, in four terminals\n"
    "  export RUBATO_SCHEDULER=127.0.0.1:4100\n"
    "  rubato scheduler --servers 1 --workers 2 -- rubato-hello\n"
    "  rubato server -- rubato-hello\n"
    "  rubato worker -- rubato-hello\n"
    "  rubato worker -- rubato-hello";

static const char TASK_SUMMARY[] =
    "Becomes PROGRAM, as one of the equal nodes of a run that a job system starts: Slurm, or\n"
    "mpirun of Open MPI or MPICH. Each node holds a part of the tables and runs workers. Which\n"
    "node this is, how many there are, and where they meet, the job system says. A program that\n"
    "uses Rubato finds this out by itself; this command says first what is missing, and its\n"
    "options set what is not as usual. Each of them sets a variable of the environment.";

static const char TASK_DESCRIPTION[] =
    "Nodes on several machines need the same secret in RUBATO_SECRET, or in a file\n"
    "(--settings 'secret_file = \"FILE\";').\n"
    "\n"
    "Example: four nodes of Slurm\n"
    "  export RUBATO_SECRET=$(rubato secret -)\n"
    "  srun -N 4 rubato task -- rubato-hello\n"
    "Example: four nodes on this machine\n"
    "  mpirun -np 4 rubato task -- rubato-hello";

#define NOT_GIVEN G_MININT /* a number */

static const RoleOptions NO_ROLE_OPTIONS = { .servers = NOT_GIVEN,
                                             .workers = NOT_GIVEN,
                                             .threads = NOT_GIVEN,
                                             .node = NOT_GIVEN,
                                             .nodes = NOT_GIVEN,
                                             .spares = NOT_GIVEN,
                                             .port = NOT_GIVEN };

static const char *const ROLES[] = { "scheduler", "server", "worker", "task", NULL };

/* (transfer full) */
static GOptionContext *new_context(const GOptionEntry *entries, const char *summary,
                                   const char *description)
{
    GOptionContext *const context =
        usage_new_context("[--] PROGRAM [ARGUMENTS...]", entries, summary, description);

    g_option_context_set_strict_posix(context, TRUE);
    return context;
}

/* The entries point into `options`, which must outlive the context. (transfer full) */
static GOptionContext *new_role_context(RoleOptions *options)
{
    const GOptionEntry entries[] = {
        { "scheduler", 0, 0, G_OPTION_ARG_STRING, &options->scheduler,
          "Where the scheduler listens, the same for all (RUBATO_SCHEDULER)", "HOST:PORT" },
        { "servers", 0, 0, G_OPTION_ARG_INT, &options->servers,
          "Of the scheduler: for so many servers it waits (RUBATO_SERVERS)", "N" },
        { "workers", 0, 0, G_OPTION_ARG_INT, &options->workers,
          "Of the scheduler: for so many workers it waits (RUBATO_WORKERS)", "N" },
        { "spares", 0, 0, G_OPTION_ARG_INT, &options->spares,
          "Of the scheduler: so many servers may come later as new ones (RUBATO_SPARES)", "N" },
        { "threads", 0, 0, G_OPTION_ARG_INT, &options->threads,
          "Of a server or worker: its threads; of the scheduler: those of each server that comes "
          "as a new one; default 1 (RUBATO_THREADS)",
          "N" },
        { "node", 0, 0, G_OPTION_ARG_INT, &options->node,
          "Of a server or worker: the id that it wants (RUBATO_NODE)", "ID" },
        { "interface", 0, 0, G_OPTION_ARG_STRING, &options->interface,
          "Where this node receives: eth0, 10.20.0.0/16, or an address (RUBATO_INTERFACE)",
          "NAME" },
        { "settings", 0, 0, G_OPTION_ARG_STRING, &options->settings,
          "Further entries of a cluster file (RUBATO_SETTINGS)", "TEXT" },
        G_OPTION_ENTRY_NULL
    };

    return new_context(entries, ROLE_SUMMARY, ROLE_DESCRIPTION);
}

/* The entries point into `options`, which must outlive the context. (transfer full) */
static GOptionContext *new_task_context(RoleOptions *options)
{
    const GOptionEntry entries[] = {
        { "servers", 0, 0, G_OPTION_ARG_INT, &options->servers,
          "This node's server threads, default 1 (RUBATO_SERVERS)", "N" },
        { "workers", 0, 0, G_OPTION_ARG_INT, &options->workers,
          "This node's workers, default a task's processors, or 1 (RUBATO_WORKERS)", "N" },
        { "interface", 0, 0, G_OPTION_ARG_STRING, &options->interface,
          "Where this node receives: eth0, 10.20.0.0/16, or an address (RUBATO_INTERFACE)",
          "NAME" },
        { "settings", 0, 0, G_OPTION_ARG_STRING, &options->settings,
          "Further entries of a cluster file (RUBATO_SETTINGS)", "TEXT" },
        { "port", 0, 0, G_OPTION_ARG_INT, &options->port,
          "Where node 0 listens until all are there, the same for all (RUBATO_PORT)", "PORT" },
        { "scheduler", 0, 0, G_OPTION_ARG_STRING, &options->scheduler,
          "Where node 0 is, if the job system does not say (RUBATO_SCHEDULER)", "HOST:PORT" },
        { "node", 0, 0, G_OPTION_ARG_INT, &options->node,
          "Which node this is, if the job system does not say (RUBATO_NODE)", "ID" },
        { "nodes", 0, 0, G_OPTION_ARG_INT, &options->nodes,
          "How many there are, if the job system does not say (RUBATO_NODES)", "N" },
        { "spares", 0, 0, G_OPTION_ARG_INT, &options->spares,
          "So many nodes may come later as new ones, the same for all (RUBATO_SPARES)", "N" },
        G_OPTION_ENTRY_NULL
    };

    return new_context(entries, TASK_SUMMARY, TASK_DESCRIPTION);
}

/* The commands that take an option. */
typedef enum {
    COMMANDS_SCHEDULER = 1,
    COMMANDS_OTHERS = 2, /* server and worker */
    COMMANDS_TASK = 4,
} Commands;

static Commands commands_of(const char *command)
{
    return strcmp(command, "scheduler") == 0 ? COMMANDS_SCHEDULER
           : strcmp(command, "task") == 0    ? COMMANDS_TASK
                                             : COMMANDS_OTHERS;
}

bool roles_has(const char *command)
{
    return g_strv_contains(ROLES, command);
}

GOptionContext *roles_new_context(const char *command, RoleOptions *options)
{
    *options = NO_ROLE_OPTIONS;
    return commands_of(command) == COMMANDS_TASK ? new_task_context(options)
                                                 : new_role_context(options);
}

/* Whether the numbers can be what was meant by them. One that is not given is NOT_GIVEN. */
static bool check_numbers(const RoleOptions *options, const char *command, GError **error)
{
    const Commands of = commands_of(command);
    const struct {
        const char *name;
        int number, lowest;
        int commands;
    } numbers[] = {
        { "servers", options->servers, of == COMMANDS_TASK ? 0 : 1,
          COMMANDS_SCHEDULER | COMMANDS_TASK },
        { "workers", options->workers, 0, COMMANDS_SCHEDULER | COMMANDS_TASK },
        { "threads", options->threads, 1, COMMANDS_SCHEDULER | COMMANDS_OTHERS },
        { "spares", options->spares, 0, COMMANDS_SCHEDULER | COMMANDS_TASK },
        { "node", options->node, of == COMMANDS_TASK ? 0 : 1, COMMANDS_OTHERS | COMMANDS_TASK },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        if (numbers[i].number == NOT_GIVEN)
            continue;
        if ((numbers[i].commands & (int)of) == 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "--%s is an option of %s",
                        numbers[i].name,
                        of == COMMANDS_SCHEDULER ? "rubato server and rubato worker"
                                                 : "rubato scheduler");
            return false;
        }
        if (numbers[i].number < numbers[i].lowest) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "--%s takes a number from %d, not %d", numbers[i].name, numbers[i].lowest,
                        numbers[i].number);
            return false;
        }
    }
    return true;
}

/* To the launch, 0 is not given, so these are set here: a run of servers alone has no workers, a
 * node may have no servers, and the first task is 0. Others are the task's alone. */
static void set_further_variables(const RoleOptions *options)
{
    const struct {
        const char *name;
        int number;
        bool only_0;
    } numbers[] = {
        { "RUBATO_SERVERS", options->servers, true }, { "RUBATO_WORKERS", options->workers, true },
        { "RUBATO_NODE", options->node, true },       { "RUBATO_SPARES", options->spares, true },
        { "RUBATO_NODES", options->nodes, false },    { "RUBATO_PORT", options->port, false }
    };

    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        if (numbers[i].number == NOT_GIVEN || (numbers[i].only_0 && numbers[i].number != 0))
            continue;
        g_autofree char *text = g_strdup_printf("%d", numbers[i].number);
        g_setenv(numbers[i].name, text, TRUE);
    }
}

static uint32_t number_or_none(int number)
{
    return number == NOT_GIVEN ? 0 : (uint32_t)number;
}

/* argv[0] is the command: the role. */
int roles_command(int argc, char **argv)
{
    RoleOptions options;
    const char *const command = argv[0];
    g_autoptr(GOptionContext) context = roles_new_context(command, &options);
    g_autoptr(GError) error = NULL;
    int code;

    if (!g_option_context_parse(context, &argc, &argv, &error) ||
        !check_numbers(&options, command, &error)) {
        code = fail_usage(command, error->message);
    } else {
        if (argc > 1 && strcmp(argv[1], "--") == 0)
            argv++, argc--;
        const RubatoLaunchRole launch = { .role = commands_of(command) == COMMANDS_TASK ? "node"
                                                                                        : command,
                                          .argv = (const char *const *)argv + 1,
                                          .scheduler = options.scheduler,
                                          .interface = options.interface,
                                          .settings = options.settings,
                                          .servers = number_or_none(options.servers),
                                          .workers = number_or_none(options.workers),
                                          .threads = number_or_none(options.threads),
                                          .node = number_or_none(options.node),
                                          .spares = number_or_none(options.spares) };
        set_further_variables(&options);
        if (argc < 2)
            code = fail_usage(command, "which program?");
        else
            code = rubato_launch_role(&launch, &error) ? EXIT_SUCCESS : fail(error);
    }
    g_free(options.scheduler);
    g_free(options.interface);
    g_free(options.settings);
    return code;
}
