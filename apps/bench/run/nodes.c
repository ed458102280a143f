/* Two nodes on this machine: this process is node 0, the program once more is node 1, on a cluster
 * file in a temporary folder. */
#include <arpa/inet.h>
#include <glib/gstdio.h>
#include <rubato/launcher.h>
#include <signal.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/run/nodes.h"
#include "apps/bench/run/process.h"

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
    default:
        return "";
    }
}

static char *cluster_file_text(const BenchCase *what)
{
    const uint32_t workers = MAX(1, what->workers), servers = MAX(1, what->servers);

    return g_strdup_printf(cluster_text, free_port(), what->mixed ? servers : 0, workers, servers,
                           what->mixed ? workers : 0, place_text(what->place));
}

static bool start_other(const BenchCase *what, const BenchOptions *options, const char *file,
                        GPid *process, GError **error)
{
    g_autofree char *repeat = g_strdup_printf("%u", options->repeat);
    const ProcessStart start = { .arguments = { "--peer", what->name, repeat,
                                                options->quick ? "quick" : "full", file } };

    return process_start(&start, process, error);
}

static bool run_with_file(const BenchCase *what, const BenchOptions *options, const char *file,
                          bool (*function)(RubatoEngine *, long, void *, GError **), void *data,
                          GError **error)
{
    RubatoEngine *engine;
    GPid other;
    bool ok;

    if (!start_other(what, options, file, &other, error))
        return false;
    engine = rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = file }, error);
    ok = engine != NULL && function(engine, other, data, error);
    rubato_engine_free(engine);
    if (!ok)
        kill(other, SIGKILL);
    process_wait(other);
    return ok;
}

bool nodes_run(const BenchCase *what, const BenchOptions *options,
               bool (*function)(RubatoEngine *engine, long peer_pid, void *data, GError **error),
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
