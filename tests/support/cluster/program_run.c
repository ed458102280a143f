/* Runs programs of the build to which the test belongs. */
#include "tests/support/cluster/program_run.h"

#include <glib/gstdio.h>
#include <math.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/runner.h"

#define ARGUMENTS_MAX 32

void outcome_clear(Outcome *outcome)
{
    g_free(outcome->out);
    g_free(outcome->err);
}

static char *program_path(const char *name)
{
    return g_build_filename(TEST_BIN_DIR, name, NULL);
}

static Outcome run(const char *const *arguments)
{
    Outcome outcome = { .status = -1 };
    g_autoptr(GError) error = NULL;
    int wait_status = 0;

    g_unsetenv("RUBATO_CLUSTER");
    g_unsetenv("RUBATO_NODE");
    ck_assert_msg(g_spawn_sync(NULL, (char **)arguments, NULL, G_SPAWN_DEFAULT, NULL, NULL,
                               &outcome.out, &outcome.err, &wait_status, &error),
                  "%s", error != NULL ? error->message : "");
    if (WIFEXITED(wait_status))
        outcome.status = WEXITSTATUS(wait_status);
    return outcome;
}

/* A cluster file of two nodes of two workers. The scheduler's port is bound until *port_fd is
 * closed, so only a process that names the port can use it. */
static char *write_cluster(int *port_fd)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    char *path = NULL;

    *port_fd = fd;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);

    g_autofree char *text = g_strdup_printf(
        "cluster: { name = \"apps\"; scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
        "  nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 2; },\n"
        "            { id = 7; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 2; } );\n"
        "  heartbeat_ms = 500; timeout_ms = %d; };\n",
        ntohs(address.sin_port), is_slow() ? 20000 : 5000);
    const int file = g_file_open_tmp("rubato-apps-XXXXXX.cfg", &path, NULL);
    ck_assert_int_ge(file, 0);
    close(file);
    ck_assert(g_file_set_contents(path, text, -1, NULL));
    return path;
}

Outcome run_program(Place place, const char *name, const char *const *arguments)
{
    g_autofree char *launcher = program_path("rubato");
    g_autofree char *program = program_path(name);
    g_autofree char *cluster = NULL;
    const char *all[ARGUMENTS_MAX + 8];
    size_t n = 0;
    int port_fd = -1;

    if (place == PLACE_TWO_NODES) {
        cluster = write_cluster(&port_fd);
        all[n++] = launcher;
        all[n++] = "run";
        all[n++] = cluster;
        all[n++] = "--";
    }
    all[n++] = program;
    if (place == PLACE_ONE_PROCESS && strcmp(name, "rubato-hello") != 0) {
        all[n++] = "--servers=2";
        all[n++] = "--workers=4";
    }
    for (size_t i = 0; arguments[i] != NULL; i++)
        all[n++] = arguments[i];
    all[n] = NULL;

    const Outcome outcome = run(all);
    if (cluster != NULL) {
        g_unlink(cluster);
        close(port_fd);
    }
    return outcome;
}

JsonNode *run_for_card(Place place, const char *name, const char *const *arguments)
{
    const char *all[ARGUMENTS_MAX];
    g_autofree char *path = NULL;
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    size_t n = 0;
    const int fd = g_file_open_tmp("rubato-card-XXXXXX", &path, NULL);

    ck_assert_int_ge(fd, 0);
    close(fd);
    for (; arguments[n] != NULL; n++)
        all[n] = arguments[n];
    all[n++] = "--json";
    all[n++] = path;
    all[n] = NULL;

    Outcome outcome = run_program(place, name, all);
    ck_assert_msg(outcome.status == 0, "%s ended with %d: %.4000s", name, outcome.status,
                  outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    g_unlink(path);
    JsonNode *card = json_from_string(text, &error);
    ck_assert_msg(card != NULL, "%s", error != NULL ? error->message : "nothing was written");
    return card;
}

double metric(JsonNode *card, const char *name)
{
    JsonObject *metrics = json_object_get_object_member(json_node_get_object(card), "metrics");

    ck_assert_msg(json_object_has_member(metrics, name), "no metric %s", name);
    return json_object_get_double_member(metrics, name);
}

int64_t number(JsonNode *card, const char *name)
{
    return json_object_get_int_member(json_node_get_object(card), name);
}

double lowest_loss(JsonNode *card)
{
    JsonObject *curve = json_object_get_object_member(json_node_get_object(card), "curve");
    JsonArray *losses = json_object_get_array_member(curve, "loss");
    double lowest = INFINITY;

    for (guint i = 0; i < json_array_get_length(losses); i++)
        lowest = fmin(lowest, json_array_get_double_element(losses, i));
    return lowest;
}

double best_rows_per_second(int n_repeats, int64_t n_rows, Place place, const char *name,
                            const char *const *arguments)
{
    double best = 0;

    for (int i = 0; i < n_repeats; i++) {
        g_autoptr(JsonNode) card = run_for_card(place, name, arguments);
        JsonObject *object = json_node_get_object(card);

        ck_assert_int_eq(number(card, "samples"), n_rows);
        best = fmax(best, json_object_get_double_member(object, "samples_per_second"));
    }
    return best;
}

void check_bad_call(const char *name, const BadCall *call)
{
    g_autofree char *dir = make_folder();
    g_autofree char *train = g_build_filename(dir, "train", NULL);
    const char *const arguments[] = { "--train", train, call->arguments[0], call->arguments[1],
                                      NULL };

    if (call->text != NULL)
        ck_assert(g_file_set_contents(train, call->text, -1, NULL));
    Outcome outcome = run_program(PLACE_ONE_PROCESS, name, arguments);
    ck_assert_int_eq(outcome.status, call->status);
    ck_assert_msg(strstr(outcome.err, call->message) != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}

char *data_path(const char *name)
{
    const char *dir = g_getenv("RUBATO_DATA_DIR");

    return dir != NULL && *dir != '\0'
               ? g_build_filename(dir, name, NULL)
               : g_build_filename(TEST_SOURCE_DIR, "..", "shared", "data", name, NULL);
}

bool has_data(const char *name)
{
    g_autofree char *path = data_path(name);

    return g_file_test(path, G_FILE_TEST_EXISTS);
}

char *make_folder(void)
{
    char *path = g_dir_make_tmp("rubato-apps-XXXXXX", NULL);

    ck_assert_ptr_nonnull(path);
    return path;
}

void remove_folder(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);

    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
        g_autofree char *inner = g_build_filename(path, name, NULL);

        if (g_unlink(inner) != 0)
            remove_folder(inner);
    }
    g_rmdir(path);
}

char *write_text(const char *dir, const char *name, const char *text)
{
    char *path = g_build_filename(dir, name, NULL);

    ck_assert(g_file_set_contents(path, text, -1, NULL));
    return path;
}

void program_files_make(ProgramFiles *files, const char *format)
{
    g_autofree char *train = g_strconcat("train.", format, NULL);
    g_autofree char *test = g_strconcat("test.", format, NULL);
    char *dir = make_folder();

    *files = (ProgramFiles){ .dir = dir,
                             .train = g_build_filename(dir, train, NULL),
                             .test = g_build_filename(dir, test, NULL),
                             .model = g_build_filename(dir, "model", NULL),
                             .output = g_build_filename(dir, "output", NULL) };
}

void program_files_remove(ProgramFiles *files)
{
    remove_folder(files->dir);
    g_free(files->dir);
    g_free(files->train);
    g_free(files->test);
    g_free(files->model);
    g_free(files->output);
}
