/* Nodes on this machine: this process is node 0, the program once more is each of the others, on a
 * cluster file in a temporary folder. */
#include <arpa/inet.h>
#include <glib/gstdio.h>
#include <rubato/launcher.h>
#include <signal.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/run/nodes.h"
#include "apps/bench/run/process.h"

static const char node_text[] =
    "    { id = %u; host = \"127.0.0.1\"; port = 0; servers = %u; workers = %u; }%s\n";

static const char cluster_text[] = "cluster: {\n"
                                   "  name = \"bench\";\n"
                                   "  scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
                                   "  nodes = (\n%s  );\n"
                                   "  timeout_ms = 20000;\n"
                                   "  stall_ms = 60000;\n"
                                   "%s"
                                   "};\n";

static uint32_t count_nodes(const BenchCase *what)
{
    return what->nodes == 0 ? 2 : what->nodes;
}

/* A port that is free now: the scheduler's has to be known beforehand. 0 if there is none. */
static unsigned free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        address.sin_port = 0;
    close(fd);
    return ntohs(address.sin_port);
}

/* The lines of the cluster file for the place. */
static const char *place_text(BenchPlace place)
{
    switch (place) {
    case BENCH_PLACE_TCP:
        return "  transport = \"tcp\";\n";
    case BENCH_PLACE_TCP_MAC:
        return "  transport = \"tcp\";\n  authenticate = true;\n  secret_file = \"run.secret\";\n";
    case BENCH_PLACE_TCP_ENCRYPTED:
        return "  transport = \"tcp\";\n  encrypt = true;\n  secret_file = \"run.secret\";\n";
    case BENCH_PLACE_ZMQ:
        return "  transport = \"zmq\";\n";
    case BENCH_PLACE_ZMQ_CURVE:
        return "  transport = \"zmq\";\n  secret_file = \"run.secret\";\n";
    case BENCH_PLACE_UCX:
        return "  transport = \"ucx\";\n";
    default:
        return "";
    }
}

/* Unless all nodes have both, node 0 has the workers and the others the servers. */
static char *cluster_file_text(const BenchCase *what)
{
    const uint32_t workers = MAX(1, what->workers), servers = MAX(1, what->servers);
    const uint32_t n_nodes = count_nodes(what);
    g_autoptr(GString) nodes = g_string_new(NULL);

    for (uint32_t i = 0; i < n_nodes; i++)
        g_string_append_printf(nodes, node_text, i, what->mixed || i > 0 ? servers : 0,
                               what->mixed || i == 0 ? workers : 0, i + 1 < n_nodes ? "," : "");
    return g_strdup_printf(cluster_text, free_port(), nodes->str, place_text(what->place));
}

static bool start_other(const BenchCase *what, const BenchOptions *options, const char *file,
                        uint32_t node, GPid *process, GError **error)
{
    g_autofree char *repeat = g_strdup_printf("%u", options->repeat);
    g_autofree char *number = g_strdup_printf("%u", node);
    const ProcessStart start = { .arguments = { "--peer", what->name, repeat,
                                                options->quick ? "quick" : "full", file, number } };

    return process_start(&start, process, error);
}

static bool run_with_file(const BenchCase *what, const BenchOptions *options, const char *file,
                          bool (*function)(RubatoEngine *, const BenchStart *, void *, GError **),
                          void *data, GError **error)
{
    const uint32_t n_nodes = count_nodes(what);
    g_autofree GPid *others = g_new0(GPid, n_nodes);
    RubatoEngine *engine = NULL;
    uint32_t n_started = 1;
    BenchStart start = { .seconds = -bench_now() };
    bool ok = true;

    for (; n_started < n_nodes && ok; n_started += ok)
        ok = start_other(what, options, file, n_started, &others[n_started], error);
    if (ok)
        engine = rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = file }, error);
    start.seconds += bench_now();
    start.peer_pid = others[1];
    ok = engine != NULL && function(engine, &start, data, error);
    rubato_engine_free(engine);
    for (uint32_t i = 1; i < n_started; i++) {
        if (!ok)
            kill(others[i], SIGKILL);
        process_wait(others[i]);
    }
    return ok;
}

bool nodes_run(const BenchCase *what, const BenchOptions *options,
               bool (*function)(RubatoEngine *engine, const BenchStart *start, void *data,
                                GError **error),
               void *data, GError **error)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    g_autofree char *text = cluster_file_text(what);
    g_autofree char *file = NULL, *secret = NULL;
    bool ok;

    if (folder == NULL)
        return false;
    file = g_build_filename(folder, "cluster.cfg", NULL);
    secret = g_build_filename(folder, "run.secret", NULL);
    ok = g_file_set_contents(file, text, -1, error) && rubato_launch_make_secret(secret, error) &&
         run_with_file(what, options, file, function, data, error);
    g_unlink(file);
    g_unlink(secret);
    g_rmdir(folder);
    return ok;
}
