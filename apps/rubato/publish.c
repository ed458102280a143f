/* The command `rubato publish URI`: until a signal ends it. */
#include "apps/rubato/publish.h"

#include <rubato/rubato.h>
#include <signal.h>
#include <string.h>

#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "Publishes the versions of a model that lie in a directory, as the run does that writes them:\n"
    "so followers have the model when the run has ended. URI is that of the run, such as\n"
    "zmq:tcp://HOST:PORT?directory=DIR. A line is printed when followers can come.";

static const char DESCRIPTION[] =
    "SIGTERM and SIGINT end it in good order. The exit code is 0 if all is well, 1 if something\n"
    "failed, and 2 for a wrong command line.\n"
    "\n"
    "Example: rubato publish zmq:tcp://127.0.0.1:7080?directory=model";

GOptionContext *publish_new_context(char ***plugins)
{
    const GOptionEntry entries[] = {
        { "plugin", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, plugins,
          "Load a plug-in first, which brings a kind of stream; may be given again", "FILE" },
        G_OPTION_ENTRY_NULL
    };
    GOptionContext *context = g_option_context_new("URI");

    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, SUMMARY);
    g_option_context_set_description(context, DESCRIPTION);
    return context;
}

static int fail_publish(const GError *error)
{
    g_printerr("rubato publish: %s\n", error->message);
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID) ? EXIT_USAGE : EXIT_FAILURE;
}

/* The publisher's thread takes no signals: these were blocked before it began. */
static int publish(const char *uri, char *const *plugins)
{
    g_autoptr(RubatoPublisher) publisher = NULL;
    g_autoptr(GError) error = NULL;
    sigset_t ends;
    int number;

    for (; plugins != NULL && *plugins != NULL; plugins++)
        if (!rubato_load_plugin(*plugins, &error))
            return fail_publish(error);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    publisher = rubato_publisher_new(uri, &error);
    if (publisher == NULL)
        return fail_publish(error);
    g_printerr("rubato publish: publishes %s\n", uri);
    (void)sigwait(&ends, &number);
    g_printerr("rubato publish: signal %d (%s): ends\n", number, strsignal(number));
    return EXIT_SUCCESS;
}

int publish_command(int argc, char **argv)
{
    char **plugins = NULL;
    g_autoptr(GOptionContext) context = publish_new_context(&plugins);
    g_autoptr(GError) error = NULL;
    int code;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        code = fail_usage("publish", error->message);
    else if (argc != 2)
        code = fail_usage("publish", "expected the URI of a stream");
    else
        code = publish(argv[1], plugins);
    g_strfreev(plugins);
    return code;
}
