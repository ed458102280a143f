/* rubato: runs a program on the nodes of a cluster file, or as a node of a run without one, checks
 * cluster files, and makes secrets for them. */
#include <locale.h>
#include <rubato/launcher.h>
#include <stdlib.h>
#include <string.h>

#include "apps/kit/report/app_output.h"
#include "apps/rubato/check.h"
#include "apps/rubato/checkpoint/checkpoint.h"
#include "apps/rubato/drain.h"
#include "apps/rubato/follow.h"
#include "apps/rubato/history/history.h"
#include "apps/rubato/place.h"
#include "apps/rubato/publish.h"
#include "apps/rubato/roles.h"
#include "apps/rubato/status/status.h"
#include "apps/rubato/timeline.h"
#include "apps/rubato/usage.h"

#define ENV_SSH "RUBATO_SSH"

static const char HELP[] =
    "Usage: rubato COMMAND ...\n"
    "\n"
    "Runs a program on the nodes of a cluster file.\n"
    "\n"
    "  rubato run [OPTIONS] FILE [--] PROGRAM [ARGUMENTS...]\n"
    "                       start PROGRAM once for each node of FILE\n"
    "  rubato scheduler|server|worker [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"
    "                       become one node of a run that has no cluster file\n"
    "  rubato task [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"
    "                       become the node that this task of Slurm or mpirun is\n"
    "  rubato check FILE    say what is wrong with FILE, or what would run where\n"
    "  rubato check         say what a program would do here, and what is missing\n"
    "  rubato place FILE TABLES\n"
    "                       say on which servers of FILE the tables of TABLES would lie\n"
    "  rubato status [ADDRESS]\n"
    "                       say how far a run is that is going on\n"
    "  rubato drain [FILE] NODE\n"
    "                       take a node out of a run that goes on, without a loss\n"
    "  rubato history check DIR\n"
    "                       judge the history that a run has written\n"
    "  rubato timeline merge FILE...\n"
    "                       join the timelines of the nodes of a run\n"
    "  rubato checkpoint list|verify|show|diff|export DIR ...\n"
    "                       look into a directory of snapshots\n"
    "  rubato checkpoint take|compact DIR ...\n"
    "                       have the run take one; write a chain as one\n"
    "  rubato follow URI    follow a model that streams, and serve it to programs\n"
    "  rubato follow --at ADDRESS status|hold|continue|back|get ...\n"
    "                       ask one that does\n"
    "  rubato publish URI   publish the versions of a model that a run has left\n"
    "  rubato secret FILE   make FILE, a secret for nodes that are started otherwise\n"
    "  rubato help COMMAND  more about a command\n"
    "  rubato --version     print the version\n"
    "  rubato --help        print this\n";

static const char RUN_SUMMARY[] =
    "Starts PROGRAM once for each node of the cluster file, here where the node's host is\n"
    "this machine and through ssh elsewhere, and stays until all of them have ended. Each\n"
    "finds its place in RUBATO_CLUSTER and RUBATO_NODE. Their output comes out line by line\n"
    "with the node's id before it. SIGINT, SIGTERM and SIGHUP go on to every node, a second\n"
    "one kills them. When one fails, the others are ended, unless they go on without it: their\n"
    "tables have replicas. Then --restart starts the lost node again, and so does --join from\n"
    "another shell; both on the node's own machine alone. Nodes that are spare in the cluster\n"
    "file are not started; --join has them join the run later.";

static const char RUN_DESCRIPTION[] =
    "The exit code is 0 where every node ended well, else that of the first that failed\n"
    "(128 + signal where a signal ended it), 1 where nothing could be started, and 2 for a\n"
    "wrong command line.\n"
    "\n"
    "Example: rubato run config/pair.cfg -- rubato-hello";

static const char SECRET_SUMMARY[] =
    "Makes FILE, which holds a new secret that nobody but its owner may read; with - it prints\n"
    "the secret. A run whose nodes are not all started by one `rubato run`, which makes a secret\n"
    "by itself, needs one: give each node a copy of the same FILE and name it in the cluster\n"
    "file (secret_file = \"FILE\";), or give all of them the same RUBATO_SECRET. A FILE that is\n"
    "there is left as it is.";

static const char SECRET_DESCRIPTION[] =
    "The exit code is 0 if it was made, 1 if it was not, and 2 for a wrong command line.\n"
    "\n"
    "Example: export RUBATO_SECRET=$(rubato secret -)";

/* The values of the options of `rubato run`. */
typedef struct {
    char **nodes;
    char *ssh;
    gboolean no_prefix;
    gboolean joins;
    int restarts;
} RunOptions;

/* The entries point into `options`, which must outlive the context. (transfer full) */
static GOptionContext *new_run_context(RunOptions *options)
{
    const GOptionEntry entries[] = {
        { "node", 'n', 0, G_OPTION_ARG_STRING_ARRAY, &options->nodes,
          "Start this node alone; may be given again for more", "ID" },
        { "ssh", 0, 0, G_OPTION_ARG_STRING, &options->ssh,
          "The command that reaches other machines (default: $RUBATO_SSH, or ssh)", "COMMAND" },
        { "no-prefix", 0, 0, G_OPTION_ARG_NONE, &options->no_prefix,
          "Print the nodes' lines as they are", NULL },
        { "restart", 0, 0, G_OPTION_ARG_INT, &options->restarts,
          "Start a node that is lost again where the run goes on, each N times at most", "N" },
        { "join", 0, 0, G_OPTION_ARG_NONE, &options->joins,
          "Join a run that goes on as the nodes of --node, which it has lost, or which are spare",
          NULL },
        G_OPTION_ENTRY_NULL
    };
    GOptionContext *context = g_option_context_new("FILE [--] PROGRAM [ARGUMENTS...]");

    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, RUN_SUMMARY);
    g_option_context_set_description(context, RUN_DESCRIPTION);
    /* The arguments after FILE or PROGRAM belong to the program. */
    g_option_context_set_strict_posix(context, TRUE);
    return context;
}

static GOptionContext *new_secret_context(void)
{
    GOptionContext *context = g_option_context_new("FILE");

    g_option_context_set_summary(context, SECRET_SUMMARY);
    g_option_context_set_description(context, SECRET_DESCRIPTION);
    return context;
}

static bool parse_nodes(char **texts, GArray *nodes, GError **error)
{
    for (; texts != NULL && *texts != NULL; texts++) {
        guint64 id;

        if (!g_ascii_string_to_unsigned(*texts, 10, 0, G_MAXUINT32, &id, NULL)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "--node takes the id of a node, not '%s'", *texts);
            return false;
        }
        const uint32_t node = (uint32_t)id;
        g_array_append_val(nodes, node);
    }
    return true;
}

static int launch(const RunOptions *options, const GArray *nodes, char **argv)
{
    const char *const *program = (const char *const *)argv + 1;
    const char *ssh = options->ssh != NULL ? options->ssh : g_getenv(ENV_SSH);
    const RubatoLaunch launch = {
        .cluster_file = argv[0],
        .argv = program,
        .nodes = nodes->len > 0 ? (const uint32_t *)(const void *)nodes->data : NULL,
        .n_nodes = nodes->len,
        .ssh = ssh != NULL && *ssh != '\0' ? ssh : NULL,
        .no_prefix = options->no_prefix,
        .restarts = (uint32_t)options->restarts,
        .joins = options->joins,
    };
    g_autoptr(GError) error = NULL;
    int exit_code;

    return rubato_launch_run(&launch, &exit_code, &error) ? exit_code : fail(error);
}

/* argv[0] is the command. */
static int run(int argc, char **argv)
{
    RunOptions options = { 0 };
    g_autoptr(GOptionContext) context = new_run_context(&options);
    g_autoptr(GArray) nodes = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    g_autoptr(GError) error = NULL;
    int code;

    /* Parses twice, up to FILE and from there on, so that options may stand on both sides of it. */
    bool parsed = g_option_context_parse(context, &argc, &argv, &error);
    if (parsed && argc > 1) {
        argc--;
        argv++; /* FILE takes the place of the program's name */
        parsed = g_option_context_parse(context, &argc, &argv, &error);
        if (parsed && argc > 1 && strcmp(argv[1], "--") == 0) {
            argv[1] = argv[0];
            argc--;
            argv++;
        }
    } else if (parsed) {
        argc = 0;
    }
    if (!parsed || !parse_nodes(options.nodes, nodes, &error))
        code = fail_usage("run", error->message);
    else if (options.restarts < 0)
        code = fail_usage("run", "--restart takes a number of times from 0");
    else if (argc == 0)
        code = fail_usage("run", "which cluster file? rubato run FILE -- PROGRAM");
    else if (argc == 1)
        code = fail_usage("run", "which program? rubato run FILE -- PROGRAM");
    else
        code = launch(&options, nodes, argv);
    g_strfreev(options.nodes);
    g_free(options.ssh);
    return code;
}

static int print_secret(void)
{
    g_autoptr(GError) error = NULL;
    char *const digits = rubato_launch_draw_secret(&error);

    if (digits == NULL)
        return fail(error);
    g_print("%s\n", digits);
    g_free(digits);
    return EXIT_SUCCESS;
}

static int secret(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = new_secret_context();
    g_autoptr(GError) error = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("secret", error->message);
    if (argc != 2)
        return fail_usage("secret", "takes the name of one file: rubato secret FILE");
    if (strcmp(argv[1], "-") == 0)
        return print_secret();
    return rubato_launch_make_secret(argv[1], &error) ? EXIT_SUCCESS : fail(error);
}

static int help(int argc, char **argv)
{
    RunOptions options = { 0 };
    gboolean json;
    char *measured = NULL;
    char **plugins = NULL;
    RoleOptions role_options;
    StatusOptions status_options;
    FollowOptions follow_options = { 0 };
    DrainOptions drain_options = { 0 };
    g_autoptr(GOptionContext) context = NULL;

    if (argc < 2) {
        g_print("%s", HELP);
        return EXIT_SUCCESS;
    }
    if (strcmp(argv[1], "run") == 0) {
        g_set_prgname("rubato run");
        context = new_run_context(&options);
    } else if (strcmp(argv[1], "check") == 0) {
        g_set_prgname("rubato check");
        context = check_new_context(&json);
    } else if (strcmp(argv[1], "place") == 0) {
        g_set_prgname("rubato place");
        context = place_new_context(&measured);
    } else if (strcmp(argv[1], "status") == 0) {
        g_set_prgname("rubato status");
        context = status_new_context(&status_options);
    } else if (strcmp(argv[1], "secret") == 0) {
        g_set_prgname("rubato secret");
        context = new_secret_context();
    } else if (strcmp(argv[1], "history") == 0) {
        g_set_prgname("rubato history");
        context = history_new_context(&json);
    } else if (strcmp(argv[1], "timeline") == 0) {
        g_set_prgname("rubato timeline");
        context = timeline_new_context();
    } else if (strcmp(argv[1], "checkpoint") == 0) {
        g_set_prgname("rubato checkpoint");
        context = checkpoint_new_context();
    } else if (strcmp(argv[1], "follow") == 0) {
        g_set_prgname("rubato follow");
        context = follow_new_context(&follow_options);
    } else if (strcmp(argv[1], "publish") == 0) {
        g_set_prgname("rubato publish");
        context = publish_new_context(&plugins);
    } else if (strcmp(argv[1], "drain") == 0) {
        g_set_prgname("rubato drain");
        context = drain_new_context(&drain_options);
    } else if (roles_has(argv[1])) {
        g_autofree char *program = g_strdup_printf("rubato %s", argv[1]);
        g_set_prgname(program);
        context = roles_new_context(argv[1], &role_options);
    } else {
        g_autofree char *message = g_strdup_printf("no command '%s'", argv[1]);
        return fail_usage("", message);
    }

    g_autofree char *text = g_option_context_get_help(context, /* main_help= */ TRUE, NULL);
    g_print("%s", text);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = { { "run", run },
                     { "check", check_command },
                     { "place", place_command },
                     { "status", status_command },
                     { "drain", drain_command },
                     { "secret", secret },
                     { "scheduler", roles_command },
                     { "server", roles_command },
                     { "worker", roles_command },
                     { "task", roles_command },
                     { "history", history_command },
                     { "timeline", timeline_command },
                     { "checkpoint", checkpoint_command },
                     { "follow", follow_command },
                     { "publish", publish_command },
                     { "help", help },
                     { "--help", help },
                     { "-h", help } };

    app_output_check_at_exit();
    setlocale(LC_CTYPE, ""); /* how text is encoded */
    if (argc < 2)
        return fail_usage("",
                          "which command? run, scheduler, server, worker, task, check, "
                          "place, status, drain, history, timeline, checkpoint, follow, publish, "
                          "secret or help");
    if (strcmp(argv[1], "--version") == 0) {
        g_print("rubato %s\n", RUBATO_VERSION);
        return EXIT_SUCCESS;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        g_autofree char *program = g_strdup_printf("rubato %s", argv[1]);
        g_set_prgname(program); /* as --help of the command shows it */
        return commands[i].run(argc - 1, argv + 1);
    }

    g_autofree char *message = g_strdup_printf(
        "no command '%s'; there are run, scheduler, server, worker, task, check, place, "
        "status, drain, history, timeline, checkpoint, follow, publish, secret and help",
        argv[1]);
    return fail_usage("", message);
}
