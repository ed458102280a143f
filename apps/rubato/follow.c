/* `rubato follow URI` serves the newest version of a stream until a signal ends it; `rubato follow
 * --at ADDRESS COMMAND` asks one that does. */
#include "apps/rubato/follow.h"

#include <errno.h>
#include <rubato/rubato.h>
#include <signal.h>
#include <string.h>

#include "apps/rubato/usage.h"

#define MOST_CLIENTS (1 << 20)

static const char SUMMARY[] =
    "Follows the stream of a model, and serves Gets from its newest version to programs, which\n"
    "open it at an address by rubato_remote_follower_connect. The line that it prints is the\n"
    "address.\n"
    "\n"
    "With --at it asks such a process instead:\n"
    "  status               its version, its tables, its clients, and what is wrong\n"
    "  hold                 stay at this version\n"
    "  continue             go on with newer ones\n"
    "  back VERSION         go to VERSION, which the stream still has, and stay there\n"
    "  get TABLE KEY...     print rows";

static const char DESCRIPTION[] =
    "SIGTERM and SIGINT end it in good order. On an address that other machines reach it needs a\n"
    "secret, which its programs know, too: `rubato secret FILE` makes one. The exit code is 0\n"
    "if all is well, 1 if something failed, and 2 for a wrong command line.\n"
    "\n"
    "Example: rubato follow file:model --serve tcp://127.0.0.1:7070 &\n"
    "         rubato follow --at tcp://127.0.0.1:7070 status";

GOptionContext *follow_new_context(FollowOptions *options)
{
    const GOptionEntry entries[] = {
        { "serve", 0, 0, G_OPTION_ARG_STRING, &options->serve,
          "Listen at this address (default: any free port of 127.0.0.1)", "tcp://HOST:PORT" },
        { "tables", 0, 0, G_OPTION_ARG_STRING, &options->tables,
          "Follow these tables alone (default: all of the first version)", "NAME,NAME..." },
        { "hold-back", 0, 0, G_OPTION_ARG_DOUBLE, &options->hold_back_s,
          "Pass over a version until it is so old", "SECONDS" },
        { "hold", 0, 0, G_OPTION_ARG_NONE, &options->hold, "Stay at the first version that it has",
          NULL },
        { "clients", 0, 0, G_OPTION_ARG_INT, &options->clients,
          "Connections at a time (default: 256)", "N" },
        { "secret-file", 0, 0, G_OPTION_ARG_FILENAME, &options->secret_file,
          "The secret that programs must know (default: RUBATO_SECRET)", "FILE" },
        { "plugin", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options->plugins,
          "Load a plug-in first, which brings a kind of stream; may be given again", "FILE" },
        { "at", 0, 0, G_OPTION_ARG_STRING, &options->at, "Ask the one that serves there",
          "tcp://HOST:PORT" },
        { "timeout", 0, 0, G_OPTION_ARG_DOUBLE, &options->timeout_s,
          "--at: give up after so many seconds (default: 10)", "SECONDS" },
        G_OPTION_ENTRY_NULL
    };

    return usage_new_context("URI | --at ADDRESS COMMAND", entries, SUMMARY, DESCRIPTION);
}

static int fail_follow(const GError *error)
{
    g_printerr("rubato follow: %s\n", error->message);
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID) ? EXIT_USAGE : EXIT_FAILURE;
}

/* ---- serving ---- */

/* Says what has changed since it was last asked. */
static void report(RubatoFollowerServer *server, RubatoServedStatus *before)
{
    RubatoServedStatus now;

    rubato_follower_server_status(server, &now);
    if (before->version == 0 && now.version != 0)
        g_printerr("rubato follow: serves version %" G_GUINT64_FORMAT "\n", now.version);
    if (now.is_held != before->is_held)
        g_printerr("rubato follow: %s version %" G_GUINT64_FORMAT "\n",
                   now.is_held ? "stays at" : "goes on from", now.version);
    if (before->fault[0] != '\0' && now.fault[0] == '\0')
        g_printerr("rubato follow: goes on with version %" G_GUINT64_FORMAT "\n", now.version);
    *before = now;
}

/* The threads of the server take no signals: these were blocked before they began. */
static void wait_for_signal(RubatoFollowerServer *server, const sigset_t *ends)
{
    const struct timespec look = { .tv_nsec = 100 * 1000 * 1000 };
    RubatoServedStatus status = { 0 };
    int number;

    do {
        report(server, &status);
        number = sigtimedwait(ends, NULL, &look);
    } while (number < 0 && (errno == EAGAIN || errno == EINTR));
    report(server, &status);
    g_printerr("rubato follow: signal %d (%s): ends at version %" G_GUINT64_FORMAT
               ", after %" G_GUINT64_FORMAT " Gets of %" G_GUINT64_FORMAT " keys\n",
               number, strsignal(number), status.version, status.n_gets, status.n_keys);
}

static int serve(const FollowOptions *options, const char *uri)
{
    g_auto(GStrv) tables = options->tables != NULL ? g_strsplit(options->tables, ",", -1) : NULL;
    const RubatoFollowerServerSpec spec = {
        .follows = { .uri = uri,
                     .tables = (const char *const *)tables,
                     .hold_back_s = options->hold_back_s },
        .address = options->serve,
        .secret_file = options->secret_file,
        .most_clients = (uint32_t)options->clients,
        .holds = options->hold,
    };
    g_autoptr(GError) error = NULL;
    sigset_t ends;

    for (char **plugin = options->plugins; plugin != NULL && *plugin != NULL; plugin++)
        if (!rubato_load_plugin(*plugin, &error))
            return fail_follow(error);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    g_autoptr(RubatoFollowerServer) server = rubato_follower_serve(&spec, &error);
    if (server == NULL)
        return fail_follow(error);
    g_print("%s\n", rubato_follower_server_address(server));
    wait_for_signal(server, &ends);
    return EXIT_SUCCESS;
}

/* ---- asking ---- */

/* (transfer full) */
static char *time_text(int64_t time_us)
{
    g_autoptr(GDateTime) time = g_date_time_new_from_unix_local(time_us / G_USEC_PER_SEC);

    return time != NULL ? g_date_time_format(time, "%Y-%m-%d %H:%M:%S")
                        : g_strdup("at an unknown time");
}

static bool print_table(RubatoRemoteFollower *remote, const char *name, GError **error)
{
    RubatoFollowedTable shape;

    if (!rubato_remote_follower_describe_table(remote, name, &shape, error))
        return false;
    g_autofree char *width = shape.shape == RUBATO_SHAPE_RAGGED
                                 ? g_strdup("of different lengths")
                                 : g_strdup_printf("× %u", shape.width);
    g_print("table    %s: %" G_GUINT64_FORMAT " rows, %s %s\n", name, shape.n_rows,
            rubato_dtype_name(shape.dtype), width);
    return true;
}

static bool print_status(RubatoRemoteFollower *remote, char **arguments, GError **error)
{
    RubatoServedStatus status;
    g_auto(GStrv) tables = NULL;
    bool ok = true;

    (void)arguments;
    if (!rubato_remote_follower_status(remote, &status, error) ||
        (tables = rubato_remote_follower_list_tables(remote, error)) == NULL)
        return false;
    g_autofree char *time = time_text(status.time_us);
    if (status.version == 0)
        g_print("version  none yet\n");
    else
        g_print("version  %" G_GUINT64_FORMAT " of %s%s\n", status.version, time,
                status.is_held ? ", held" : "");
    for (char **table = tables; *table != NULL && ok; table++)
        ok = print_table(remote, *table, error);
    g_print("clients  %u, this one included\n", status.n_clients);
    g_print("answered %" G_GUINT64_FORMAT " Gets of %" G_GUINT64_FORMAT " keys\n", status.n_gets,
            status.n_keys);
    if (status.fault[0] != '\0')
        g_print("fault    %s\n", status.fault);
    return ok;
}

static bool hold(RubatoRemoteFollower *remote, char **arguments, GError **error)
{
    (void)arguments;
    return rubato_remote_follower_hold(remote, error);
}

static bool go_on(RubatoRemoteFollower *remote, char **arguments, GError **error)
{
    (void)arguments;
    return rubato_remote_follower_continue(remote, error);
}

static bool read_number(const char *text, const char *what, uint64_t *number, GError **error)
{
    if (g_ascii_string_to_unsigned(text, 10, 0, UINT64_MAX, number, NULL))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "expected %s, found \"%s\"", what, text);
    return false;
}

static bool go_back(RubatoRemoteFollower *remote, char **arguments, GError **error)
{
    uint64_t version;

    return read_number(arguments[0], "the number of a version", &version, error) &&
           rubato_remote_follower_go_to(remote, version, error);
}

/* ---- rows ---- */

typedef struct {
    RubatoDtype dtype;
    const RubatoKey *keys;
} Printed;

static void print_value(RubatoDtype dtype, const void *values, uint32_t i)
{
    switch (dtype) {
    case RUBATO_F32:
        g_print(" %.9g", (double)((const float *)values)[i]);
        break;
    case RUBATO_F64:
        g_print(" %.17g", ((const double *)values)[i]);
        break;
    case RUBATO_I32:
        g_print(" %" G_GINT32_FORMAT, ((const int32_t *)values)[i]);
        break;
    case RUBATO_I64:
        g_print(" %" G_GINT64_FORMAT, ((const int64_t *)values)[i]);
        break;
    default: /* the only other dtype of tables */
        g_print(" %u", ((const uint8_t *)values)[i]);
    }
}

static void print_row(size_t i, const void *values, uint32_t n_values, void *user_data)
{
    const Printed *const printed = user_data;

    g_print("%" G_GUINT64_FORMAT ":", printed->keys[i]);
    if (values == NULL)
        g_print(" no row");
    for (uint32_t j = 0; values != NULL && j < n_values; j++)
        print_value(printed->dtype, values, j);
    g_print("\n");
}

/* TABLE KEY... */
static bool get(RubatoRemoteFollower *remote, char **arguments, GError **error)
{
    const size_t n = g_strv_length(arguments + 1);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    RubatoFollowedTable shape;

    for (size_t i = 0; i < n; i++)
        if (!read_number(arguments[i + 1], "a key", &keys[i], error))
            return false;
    if (!rubato_remote_follower_describe_table(remote, arguments[0], &shape, error))
        return false;
    g_autoptr(RubatoRemoteTable) table =
        rubato_remote_follower_open_table(remote, arguments[0], shape.dtype, error);
    Printed printed = { shape.dtype, keys };
    return table != NULL &&
           rubato_remote_table_read(table, keys, n, print_row, &printed, NULL, error);
}

static const struct {
    const char *name, *usage;
    guint least, most; /* arguments */
    bool (*run)(RubatoRemoteFollower *remote, char **arguments, GError **error);
} commands[] = {
    { "status", "status", 0, 0, print_status },
    { "hold", "hold", 0, 0, hold },
    { "continue", "continue", 0, 0, go_on },
    { "back", "back VERSION", 1, 1, go_back },
    { "get", "get TABLE KEY...", 2, RUBATO_REMOTE_MOST_KEYS, get },
};

/* words: the command and its arguments, ended by NULL. */
static int ask(const FollowOptions *options, char **words)
{
    const RubatoRemoteFollowerSpec spec = { .address = options->at,
                                            .secret_file = options->secret_file,
                                            .timeout_s = options->timeout_s };
    const guint n = words[0] != NULL ? g_strv_length(words + 1) : 0;
    g_autoptr(GError) error = NULL;

    for (size_t i = 0; words[0] != NULL && i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(words[0], commands[i].name) != 0)
            continue;
        if (n < commands[i].least || n > commands[i].most) {
            g_autofree char *usage =
                g_strdup_printf("rubato follow --at ADDRESS %s", commands[i].usage);

            return fail_usage("follow", usage);
        }
        g_autoptr(RubatoRemoteFollower) remote = rubato_remote_follower_connect(&spec, &error);
        return remote != NULL && commands[i].run(remote, words + 1, &error) ? EXIT_SUCCESS
                                                                            : fail_follow(error);
    }
    return fail_usage("follow", "which command? status, hold, continue, back or get");
}

/* ---- the command ---- */

/* A flag that has no effect is refused. NULL: none is given. */
static const char *find_needless(const FollowOptions *options)
{
    if (options->at == NULL)
        return options->timeout_s != USUAL_TIMEOUT_S ? "--timeout: needs --at ADDRESS" : NULL;
    return options->serve != NULL || options->tables != NULL || options->hold ||
                   options->hold_back_s != 0 || options->clients != 0 || options->plugins != NULL
               ? "--at: asks one that serves already; it takes --secret-file and --timeout alone"
               : NULL;
}

static int run(const FollowOptions *options, int argc, char **argv)
{
    const char *const needless = find_needless(options);

    if (needless != NULL)
        return fail_usage("follow", needless);
    if (!usage_takes_wait("follow", "--timeout", options->timeout_s))
        return EXIT_USAGE;
    if (options->clients < 0 || options->clients > MOST_CLIENTS)
        return fail_usage("follow", "--clients takes a number of connections from 1");
    if (options->at != NULL)
        return ask(options, argv + 1);
    if (argc != 2)
        return fail_usage("follow", "which stream? rubato follow file:DIR, or zmq:tcp://HOST:PORT");
    return serve(options, argv[1]);
}

int follow_command(int argc, char **argv)
{
    FollowOptions options = { .timeout_s = USUAL_TIMEOUT_S };
    g_autoptr(GOptionContext) context = follow_new_context(&options);
    g_autoptr(GError) error = NULL;
    const int code = g_option_context_parse(context, &argc, &argv, &error)
                         ? run(&options, argc, argv)
                         : fail_usage("follow", error->message);

    g_free(options.serve);
    g_free(options.at);
    g_free(options.tables);
    g_free(options.secret_file);
    g_strfreev(options.plugins);
    return code;
}
