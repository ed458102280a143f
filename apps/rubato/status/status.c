/* `rubato status`: asks a run that is going on how far it is, and prints it. */
#include "apps/rubato/status/status.h"

#include <math.h>
#include <rubato/rubato.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/rubato/status/status_fetch.h"
#include "apps/rubato/status/status_table.h"
#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "Asks a run that is going on how far it is: its nodes, its tasks with the clock of each\n"
    "worker, which worker has which block of the data, how many blocks are left, and who waits\n"
    "for whom. ADDRESS is PORT of this host, HOST:PORT or http://HOST:PORT, of the scheduler's\n"
    "node, which was started with RUBATO_HEALTH=PORT; without it, PORT is that of RUBATO_HEALTH\n"
    "here. Another node tells of itself. Nodes tell this to processes of their own host alone.";

static const char DESCRIPTION[] =
    "The exit code is 0 if the run has answered, 1 if it has not, or is broken, and 2 for a wrong\n"
    "command line. With --watch it is 0 if the run has answered and then told its end; 1 if it\n"
    "ends without a word, as a process that was killed.\n"
    "\n"
    "Example: RUBATO_HEALTH=4119 rubato-lr --train rows.libsvm & rubato status 4119";

GOptionContext *status_new_context(StatusOptions *options)
{
    const GOptionEntry entries[] = {
        { "json", 0, 0, G_OPTION_ARG_NONE, &options->json,
          "Print what the node answers: a JSON object on a line", NULL },
        { "watch", 0, 0, G_OPTION_ARG_DOUBLE, &options->watch_s,
          "Ask again every so many seconds until the run tells its end", "SECONDS" },
        { "timeout", 0, 0, G_OPTION_ARG_DOUBLE, &options->timeout_s,
          "Give up an answer after so many seconds (default: 10)", "SECONDS" },
        G_OPTION_ENTRY_NULL
    };

    return usage_new_context("[ADDRESS]", entries, SUMMARY, DESCRIPTION);
}

static int fail_status(const GError *error)
{
    g_printerr("rubato status: %s\n", error->message);
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID) ? EXIT_USAGE : EXIT_FAILURE;
}

/* (transfer full) */
static JsonNode *read_status(GBytes *body, GError **error)
{
    gsize n;

    if (body == NULL)
        return NULL;
    const char *const text = g_bytes_get_data(body, &n);
    return status_json_read(text, n, error);
}

/* (transfer full) */
static JsonNode *ask(const char *address, const StatusOptions *options, GError **error)
{
    g_autoptr(GBytes) body = status_fetch(address, options->timeout_s, error);

    return read_status(body, error);
}

/* Returns whether the run is not broken. */
static bool print(JsonNode *node, const StatusOptions *options, StatusRates *rates)
{
    JsonObject *const status = json_node_get_object(node);
    g_autofree char *state = status_json_text(status, "state");
    g_autoptr(GString) text = g_string_new(NULL);

    if (options->json) {
        g_autofree char *line = json_to_string(node, /* pretty= */ FALSE);
        g_string_append_printf(text, "%s\n", line);
    } else {
        status_table_append(status, rates, text);
    }
    g_print("%s", text->str);
    return g_strcmp0(state, "broken") != 0;
}

/* What the run has said at its end. Its process may have ended without a word. */
static int tell_end(StatusCall *end, const StatusOptions *options, StatusRates *rates)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GBytes) body = status_call_read(end, &error);
    g_autoptr(JsonNode) status = read_status(body, &error);

    if (status == NULL) {
        g_prefix_error(&error, "the run has not told its end: ");
        return fail_status(error);
    }
    g_autofree char *state = status_json_text(json_node_get_object(status), "state");
    if (options->json || g_strcmp0(state, "ends") != 0)
        return print(status, options, rates) ? EXIT_SUCCESS : EXIT_FAILURE;
    g_print("\nthe run has ended\n");
    return EXIT_SUCCESS;
}

/* Until the run tells its end, on a connection that is there from the beginning. So the end differs
 * from a network that fails, and from a process that was killed. */
static int watch(const char *address, const StatusOptions *options)
{
    g_autoptr(StatusRates) rates = status_rates_new();
    g_autoptr(GError) error = NULL;
    g_autoptr(StatusCall) end = status_call_new(address, "/end", options->timeout_s, &error);
    const bool clears = !options->json && isatty(STDOUT_FILENO);

    if (end == NULL)
        return fail_status(error);
    for (bool has_answered = false;; has_answered = true) {
        g_autoptr(JsonNode) status = ask(address, options, &error);

        /* a run that ends while it is asked may close that connection first */
        if (status == NULL && !(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK) &&
                                status_call_wait(end, options->timeout_s)))
            return fail_status(error);
        if (status == NULL)
            break;
        if (clears)
            g_print("\033[H\033[J");
        else if (has_answered && !options->json)
            g_print("\n");
        print(status, options, rates);
        if (status_call_wait(end, options->watch_s))
            break;
    }
    return tell_end(end, options, rates);
}

static int ask_once(const char *address, const StatusOptions *options)
{
    g_autoptr(StatusRates) rates = status_rates_new();
    g_autoptr(GError) error = NULL;
    g_autoptr(JsonNode) status = ask(address, options, &error);

    if (status == NULL)
        return fail_status(error);
    return print(status, options, rates) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int status_command(int argc, char **argv)
{
    StatusOptions options = { .watch_s = NAN, .timeout_s = USUAL_TIMEOUT_S };
    g_autoptr(GOptionContext) context = status_new_context(&options);
    g_autoptr(GError) error = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("status", error->message);
    if (argc > 2)
        return fail_usage("status", "takes one address: rubato status [ADDRESS]");
    if (!usage_takes_wait("status", "--timeout", options.timeout_s))
        return EXIT_USAGE;
    if (!isnan(options.watch_s) && !usage_takes_wait("status", "--watch", options.watch_s))
        return EXIT_USAGE;

    const char *const address = argc == 2 ? argv[1] : g_getenv("RUBATO_HEALTH");
    if (address == NULL || *address == '\0')
        return fail_usage("status", "which run? rubato status PORT, or set RUBATO_HEALTH");
    return isnan(options.watch_s) ? ask_once(address, &options) : watch(address, &options);
}
