/* An engine from the command line: --cluster, --node, --servers, --workers, --bind-cores, --numa
 * and --plugin, and what `rubato run`, `rubato scheduler` and others put into the environment. */
#include <rubato/engine.h>
#include <rubato/error.h>
#include <rubato/plugin.h>
#include <stdlib.h>
#include <string.h>

#include "io/number_text.h"

enum { MAX_NUMBER = 1 << 20 };

static bool take_number(const char *flag, int given, uint32_t *number, GError **error)
{
    if (given < 0 || given > MAX_NUMBER) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s %d makes no sense; give a number from 0 to %d", flag, given, MAX_NUMBER);
        return false;
    }
    *number = (uint32_t)given;
    return true;
}

/* Leaves *node as it is when the environment names no node. */
static bool take_node_of_environment(int *node, GError **error)
{
    const char *text = g_getenv("RUBATO_NODE");
    uint64_t number;

    if (text == NULL)
        return true;
    if (!number_text_read(text, 0, MAX_NUMBER, &number)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the environment variable RUBATO_NODE is \"%s\"; it has to be a node's id",
                    text);
        return false;
    }
    *node = (int)number;
    return true;
}

static bool check(const RubatoEngineConfig *config, int node, bool has_numbers, GError **error)
{
    const char *wrong = NULL;

    if (config->cluster_file == NULL && node != -1)
        wrong = "--node says which node of a cluster file this is; give --cluster FILE too";
    else if (config->cluster_file != NULL && node == -1)
        wrong = "a cluster file needs --node ID, which of its nodes this process is; `rubato run` "
                "starts all of them";
    else if (config->cluster_file != NULL && has_numbers)
        wrong = "--servers and --workers are for a single process; a cluster file says both for "
                "each node";
    else if (config->announcement != NULL && has_numbers &&
             config->announcement->role != RUBATO_ROLE_NODE)
        wrong = "--servers and --workers are for a single process; RUBATO_ROLE says that this is "
                "one of several, and RUBATO_THREADS how many threads it has";
    if (wrong != NULL)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, wrong);
    return wrong == NULL;
}

/* Prints the flags and ends the process if the remaining arguments ask for help. GLib would treat
 * any short option that contains an h as such a request, but short options belong to the
 * program. */
static void help_if_asked(GOptionContext *context, int argc, char *const *argv)
{
    static const char *const asking[] = { "--help", "-h", "-?", NULL };
    bool asked = false;

    for (int i = 1; i < argc && !asked && strcmp(argv[i], "--") != 0; i++)
        asked = g_strv_contains(asking, argv[i]);
    if (!asked)
        return;

    char *const text = g_option_context_get_help(context, TRUE, NULL);

    g_print("%s", text);
    g_free(text);
    exit(EXIT_SUCCESS);
}

RubatoEngine *rubato_engine_new_from_args(int *argc, char ***argv, GError **error)
{
    g_autofree char *file = NULL;
    g_auto(GStrv) plugins = NULL;
    gboolean bind_cores = FALSE, numa = FALSE;
    int node = -1, servers = 0, workers = 0;
    const GOptionEntry entries[] = {
        { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &file, "Run as a node of this cluster file",
          "FILE" },
        { "node", 0, 0, G_OPTION_ARG_INT, &node, "Which of its nodes this process is", "ID" },
        { "servers", 0, 0, G_OPTION_ARG_INT, &servers,
          "Server threads of a single process (default 1)", "N" },
        { "workers", 0, 0, G_OPTION_ARG_INT, &workers,
          "Workers of a single process, where the task does not say (default 1)", "N" },
        { "bind-cores", 0, 0, G_OPTION_ARG_NONE, &bind_cores,
          "Bind servers to cores of their own, and workers to the others", NULL },
        { "numa", 0, 0, G_OPTION_ARG_NONE, &numa, "... and rows to the NUMA nodes of their servers",
          NULL },
        { "plugin", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &plugins,
          "Load models, storages and update rules from this file; may be repeated", "FILE" },
        { 0 },
    };
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    RubatoEngineConfig config = { .handle_signals = true };
    RubatoAnnouncement announcement = { .role = RUBATO_ROLE_NONE };
    uint32_t number = 0;

    g_return_val_if_fail(argc != NULL && argv != NULL, NULL);
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_ignore_unknown_options(context, TRUE);
    g_option_context_set_help_enabled(context, FALSE);
    if (!g_option_context_parse(context, argc, argv, error))
        return NULL;
    help_if_asked(context, *argc, *argv);
    if (file == NULL && node == -1) {
        if (!rubato_announcement_from_environment(&announcement, error))
            return NULL;
        file = g_strdup(g_getenv("RUBATO_CLUSTER"));
        if (file != NULL && !take_node_of_environment(&node, error))
            return NULL;
    }
    if (announcement.role != RUBATO_ROLE_NONE)
        config.announcement = &announcement;
    config.cluster_file = file;
    config.bind_cores = bind_cores;
    config.numa = numa;
    if (!check(&config, node, servers != 0 || workers != 0, error) ||
        !take_number("--servers", servers, &config.servers, error) ||
        !take_number("--workers", workers, &config.workers, error))
        return NULL;
    if (file != NULL && !take_number("--node", node, &number, error))
        return NULL;
    config.node = number;
    if (config.servers != 0)
        announcement.servers = config.servers;
    if (config.workers != 0)
        announcement.workers = config.workers;
    if (config.announcement != NULL)
        config.servers = config.workers = 0; /* the announcement has them */
    for (char **path = plugins; path != NULL && *path != NULL; path++)
        if (!rubato_load_plugin(*path, error))
            return NULL;
    return rubato_engine_new(&config, error);
}
