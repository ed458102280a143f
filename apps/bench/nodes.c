/* Two nodes on this machine: this process is node 0, the program once more is node 1, on a cluster
 * file in a temporary folder. */
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <stdlib.h>

#include "apps/bench/bench.h"

static const char cluster_text[] =
    "cluster: {\n"
    "  name = \"bench\";\n"
    "  scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
    "  nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = %u; workers = %u; },\n"
    "            { id = 1; host = \"127.0.0.1\"; port = 0; servers = %u; workers = %u; } );\n"
    "  timeout_ms = 20000;\n"
    "  stall_ms = 60000;\n"
    "%s"
    "};\n";

/* A port that is free now: the scheduler's has to be known beforehand. */
static guint16 free_port(void)
{
    g_autoptr(GSocketListener) listener = g_socket_listener_new();

    return g_socket_listener_add_any_inet_port(listener, NULL, NULL);
}

static char *cluster_file_text(const BenchCase *what)
{
    const uint32_t workers = MAX(1, what->workers), servers = MAX(1, what->servers);

    return g_strdup_printf(cluster_text, free_port(), what->mixed ? servers : 0, workers, servers,
                           what->mixed ? workers : 0,
                           what->place == BENCH_TCP ? "  transport = \"tcp\";\n" : "");
}

static GSubprocess *start_other(const BenchCase *what, const BenchOptions *options,
                                const char *file, GError **error)
{
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    g_autofree char *repeat = g_strdup_printf("%u", options->repeat);

    g_subprocess_launcher_setenv(launcher, "RUBATO_CLUSTER", file, TRUE);
    g_subprocess_launcher_setenv(launcher, "RUBATO_NODE", "1", TRUE);
    return g_subprocess_launcher_spawn(launcher, error, options->self, "--peer", what->name, repeat,
                                       options->quick ? "quick" : "full", NULL);
}

static bool run_with_file(const BenchCase *what, const BenchOptions *options, const char *file,
                          bool (*function)(RubatoEngine *, long, void *, GError **), void *data,
                          GError **error)
{
    g_autoptr(GSubprocess) other = start_other(what, options, file, error);
    RubatoEngine *engine;
    bool ok;

    if (other == NULL)
        return false;
    engine = rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = file }, error);
    ok = engine != NULL && function(engine, atol(g_subprocess_get_identifier(other)), data, error);
    rubato_engine_free(engine);
    if (!ok)
        g_subprocess_force_exit(other);
    g_subprocess_wait(other, NULL, NULL);
    return ok;
}

bool nodes_run(const BenchCase *what, const BenchOptions *options,
               bool (*function)(RubatoEngine *engine, long peer_pid, void *data, GError **error),
               void *data, GError **error)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    g_autofree char *text = cluster_file_text(what);
    g_autofree char *file = NULL;
    bool ok;

    if (folder == NULL)
        return false;
    file = g_build_filename(folder, "cluster.cfg", NULL);
    ok = g_file_set_contents(file, text, -1, error) &&
         run_with_file(what, options, file, function, data, error);
    g_unlink(file);
    g_rmdir(folder);
    return ok;
}
