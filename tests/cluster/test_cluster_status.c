/* `rubato status` of real clusters whose workers stand still in the middle of their data.
 *
 * Each worker takes some batches, then all meet in a barrier. Behind it worker 0, of the
 * scheduler's node, reads from a pipe until the case closes it, and the others wait for it in a
 * second barrier. So what the case asks in between does not change. */
#include <json-glib/json-glib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

enum { N_ROWS = 4000, EPOCHS = 2, BATCH = 40 };

/* How long a node is waited for that will answer, and one that will not. */
enum { LONG_MS = 100000, SHORT_MS = 300 };

static const ClusterShape shapes[] = {
    { .n_nodes = 1, .nodes = { { 1, 2 } } },
    { .n_nodes = 3, .nodes = { { 1, 2 }, { 1, 0 }, { 1, 2 } } },
};

static char *dir; /* of the case, and of its nodes */
static int gate[2];

static void set_up(void)
{
    dir = g_dir_make_tmp("rubato-status-XXXXXX", NULL);
    g_free(rows_write(dir, "rows.ffm", ROWS_PLAIN, 0, N_ROWS));
    ck_assert_int_eq(pipe(gate), 0);
    g_setenv("RUBATO_HEALTH", "0", TRUE);
}

static void tear_down(void)
{
    remove_files(dir);
    g_free(dir);
}

/* ---- in a node ---- */

/* What a case has the nodes do. */
typedef struct {
    uint32_t wait_ms;
    bool continues; /* without node 2, which the case kills while worker 0 stands still */
} Scene;

static const Scene usual = { LONG_MS, false }, impatient = { SHORT_MS, false },
                   losing = { LONG_MS, true };

typedef struct {
    RubatoEngine *engine;
    RubatoDataset *dataset;
    bool continues;
} Job;

/* Ends with the beat at which the scheduler finds that the node's process has ended. */
static void wait_for_loss(RubatoEngine *engine)
{
    while (!cluster_is_lost(engine, 2))
        ;
}

/* Worker r takes 2 + r batches. */
static bool read_some(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC,
                                          .batch_rows = BATCH,
                                          .ahead = 1,
                                          .epochs = EPOCHS,
                                          .shuffle = true };
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "w", RUBATO_F32, error);
    if (table == NULL)
        return false;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &options, error);
    if (reader == NULL)
        return false;
    for (uint32_t i = 0; i < 2 + rank; i++) {
        EXPECT(rubato_reader_next(reader, &batch, error), "batch %u", i);
        if (!rubato_kv_table_clock(table, error))
            return false;
    }
    if (!rubato_worker_barrier(worker, error))
        return false;
    if (rank == 0) {
        char byte;

        cluster_say("held");
        if (job->continues) {
            wait_for_loss(job->engine);
            cluster_say("lost");
        }
        EXPECT(read(gate[0], &byte, 1) == 0, "the end of the pipe");
    }
    if (!rubato_worker_barrier(worker, error))
        return false;
    while (rubato_reader_next(reader, &batch, error))
        ;
    return !rubato_reader_failed(reader);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "w", NULL };
    const Scene *const scene = data;
    const RubatoTableSpec spec = {
        .name = "w", .n_keys = 100, .model = "asp", .replicas = scene->continues ? 1 : 0
    };
    g_autofree char *path = g_build_filename(dir, "rows.ffm", NULL);
    const char *const paths[] = { path, NULL };
    g_autoptr(RubatoDataset) dataset =
        rubato_dataset_open(&(RubatoDataSpec){ .paths = paths }, error);

    Job job = { engine, dataset, scene->continues };
    const RubatoTask task = { .name = "train",
                              .run = read_some,
                              .user_data = &job,
                              .tables = tables,
                              .on_loss = scene->continues ? RUBATO_ON_LOSS_CONTINUE
                                                          : RUBATO_ON_LOSS_FAIL };
    close(gate[1]);
    pthread_mutex_lock(&engine->lock);
    engine->status_wait_ms = scene->wait_ms;
    pthread_mutex_unlock(&engine->lock);
    cluster_say("port %u ", health_port(engine->health));
    return dataset != NULL && rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_run(engine, &task, error);
}

/* ---- in the case ---- */

/* Runs `rubato status` at the port of a node. (transfer full) */
static char *ask(ClusterRun *run, uint32_t node, const char *option, int status, const char *err)
{
    g_autofree char *port = cluster_text_after(run, node, "port ");
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "status", "--timeout=100",
                                 g_strstrip(port),       option,   NULL };
    g_autoptr(GError) error = NULL;
    g_autofree char *complained = NULL;
    char *said = NULL;
    int ended;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                      &complained, &ended, &error))
        cluster_fail(run, "%s", error->message);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != status || strstr(complained, err) == NULL)
        cluster_fail(run, "status %d: %s%s", ended, said, complained);
    return said;
}

static JsonNode *ask_for_json(ClusterRun *run, uint32_t node)
{
    g_autofree char *text = ask(run, node, "--json", 0, "");
    JsonNode *const root = json_from_string(text, NULL);

    if (root == NULL)
        cluster_fail(run, "no JSON: %s", text);
    return root;
}

static ClusterRun *begin_with(const ClusterShape *shape, const Scene *scene)
{
    ClusterRun *run = cluster_run_new(shape);

    cluster_start(run, play, scene);
    for (uint32_t i = 0; i < shape->n_nodes; i++)
        cluster_wait_for(run, i, "port ");
    cluster_wait_for(run, 0, "held");
    return run;
}

static ClusterRun *begin(const ClusterShape *shape)
{
    return begin_with(shape, &usual);
}

static void end(ClusterRun *run)
{
    close(gate[1]);
    cluster_expect_success(run);
    cluster_run_free(run);
}

static JsonObject *element(JsonObject *object, const char *list, guint i)
{
    JsonArray *const array = json_object_get_array_member(object, list);

    ck_assert_uint_lt(i, json_array_get_length(array));
    return json_array_get_object_element(array, i);
}

/* The workers of a node: each has got 2 + rank batches, and no block is with two of them. */
static void check_node(JsonObject *node, uint32_t first_rank, uint32_t n_workers,
                       GHashTable *blocks)
{
    JsonObject *const task = element(node, "tasks", 0);
    JsonObject *const reader = n_workers > 0 ? element(task, "readers", 0) : NULL;

    ck_assert_uint_eq(json_array_get_length(json_object_get_array_member(task, "workers")),
                      n_workers);
    for (uint32_t i = 0; i < n_workers; i++) {
        JsonObject *const worker = element(task, "workers", i);
        JsonObject *const place = element(reader, "workers", i);
        const int64_t rank = json_object_get_int_member(place, "worker");

        ck_assert_int_eq(json_object_get_int_member(worker, "worker"), first_rank + i);
        ck_assert_int_eq(
            json_object_get_int_member(json_object_get_object_member(worker, "clocks"), "w"),
            2 + first_rank + i);
        ck_assert(rank >= first_rank && rank < first_rank + n_workers);
        ck_assert_int_eq(json_object_get_int_member(place, "rows"), BATCH * (2 + rank));
        ck_assert_int_eq(json_object_get_int_member(place, "epoch"), 1);
        ck_assert(g_str_has_suffix(json_object_get_string_member(place, "file"), "/rows.ffm"));
        ck_assert(
            g_hash_table_add(blocks, g_strdup_printf("%" G_GINT64_FORMAT,
                                                     json_object_get_int_member(place, "block"))));
    }
}

START_TEST(status_tells_which_worker_has_which_block)
{
    const ClusterShape *const shape = &shapes[_i];
    g_autoptr(GHashTable) blocks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    ClusterRun *run = begin(shape);
    g_autoptr(JsonNode) root = ask_for_json(run, 0);
    JsonObject *const status = json_node_get_object(root);
    JsonObject *const whole = json_object_get_object_member(status, "run");
    JsonObject *const queue = element(element(whole, "tasks", 0), "readers", 0);
    JsonObject *const own = element(element(status, "nodes", 0), "tasks", 0);
    uint32_t rank = 0;

    for (uint32_t i = 0; i < shape->n_nodes; i++) {
        JsonObject *node = NULL; /* they come in the order of their answers */

        for (uint32_t j = 0; j < shape->n_nodes; j++)
            if (json_object_get_int_member(element(status, "nodes", j), "node") == CLUSTER_IDS[i])
                node = element(status, "nodes", j);
        ck_assert(node != NULL);
        check_node(node, rank, shape->nodes[i].workers, blocks);
        ck_assert_str_eq(json_object_get_string_member(element(whole, "nodes", i), "state"),
                         "live");
        rank += shape->nodes[i].workers;
    }
    ck_assert_int_eq(json_object_get_int_member(queue, "done") +
                         json_object_get_int_member(queue, "dealt") +
                         json_object_get_int_member(queue, "left"),
                     EPOCHS * json_object_get_int_member(element(own, "readers", 0), "blocks"));
    end(run);
}
END_TEST

START_TEST(status_of_another_node_is_its_own_and_names_the_scheduler_s)
{
    ClusterRun *run = begin(&shapes[1]);
    g_autofree char *text = ask(run, 2, NULL, 0, "");

    ck_assert_msg(g_str_has_prefix(text, "the run of 3 nodes goes on, says node 20\n"
                                         "this is what node 20 knows of itself; the scheduler is "
                                         "on node 3 "),
                  "%s", text);
    ck_assert_msg(strstr(text, "\n  3       20    reads  5 ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\n  0       3 ") == NULL, "%s", text);
    end(run);
}
END_TEST

/* Node 20 does not run, and is not lost for a minute. Node 7 may be late as well. */
START_TEST(status_does_not_wait_for_a_node_that_stands_still)
{
    ClusterRun *run = begin_with(&shapes[1], &impatient);

    cluster_signal(run, 2, SIGSTOP);
    g_autofree char *text = ask(run, 0, NULL, 0, "");
    cluster_signal(run, 2, SIGCONT);
    ck_assert_msg(strstr(text, "node 20 does not say how far it is: ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\n  1       3     reads  3 ") != NULL, "%s", text);
    end(run);
}
END_TEST

/* What the lost node's workers had read is left again, for the others. */
START_TEST(status_tells_of_a_task_that_goes_on_without_a_lost_node)
{
    ClusterRun *run = begin_with(&shapes[1], &losing);

    cluster_signal(run, 2, SIGKILL);
    cluster_wait_for(run, 0, "lost");
    g_autofree char *text = ask(run, 0, NULL, 0, "");
    ck_assert_msg(strstr(text, "\n20    lost   ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "task train continues without the workers of lost nodes\n") != NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "\n  1       3     reads  3 ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\n  3       20 ") == NULL, "%s", text);
    g_autoptr(JsonNode) root = ask_for_json(run, 0);
    JsonObject *const status = json_node_get_object(root);
    JsonObject *const whole = json_object_get_object_member(status, "run");
    JsonObject *const queue = element(element(whole, "tasks", 0), "readers", 0);
    JsonObject *const own = element(element(status, "nodes", 0), "tasks", 0);
    ck_assert_int_eq(json_object_get_int_member(queue, "done") +
                         json_object_get_int_member(queue, "dealt") +
                         json_object_get_int_member(queue, "left"),
                     EPOCHS * json_object_get_int_member(element(own, "readers", 0), "blocks"));
    ck_assert_int_eq(json_object_get_int_member(element(queue, "nodes", 1), "node"), 20);
    ck_assert_int_eq(json_object_get_int_member(element(queue, "nodes", 1), "dealt"), 0);
    close(gate[1]);
    cluster_expect_end(run, 2, -SIGKILL);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 1, 0);
    cluster_run_free(run);
}
END_TEST

/* By its own word (_i 0), or without one. */
START_TEST(status_that_is_watched_knows_how_the_run_ends)
{
    ClusterRun *run = begin(&shapes[0]);
    g_autofree char *port = cluster_text_after(run, 0, "port ");
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "status", "--watch=100", g_strstrip(port),
                                 NULL };
    g_autoptr(GString) said = g_string_new(NULL);
    bool goes_on = true;
    char byte;
    int out, status;
    GPid pid;

    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &pid, NULL, &out,
                                       NULL, NULL));
    while (read(out, &byte, 1) == 1) {
        g_string_append_c(said, byte);
        if (goes_on && strstr(said->str, "task train") != NULL) {
            goes_on = false;
            if (_i == 0)
                close(gate[1]);
            else
                cluster_signal(run, 0, SIGKILL);
        }
    }
    close(out);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != _i ||
        g_str_has_suffix(said->str, "\nthe run has ended\n") != (_i == 0))
        cluster_fail(run, "status %d: %s", status, said->str);
    cluster_expect_end(run, 0, _i == 0 ? 0 : -SIGKILL);
    cluster_run_free(run);
}
END_TEST

START_TEST(status_of_a_run_that_has_ended_is_refused)
{
    ClusterRun *run = begin(&shapes[0]);

    close(gate[1]);
    cluster_expect_success(run);
    g_autofree char *text = ask(run, 0, NULL, 1, "nothing answers at ");
    ck_assert_str_eq(text, "");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster status");
    TCase *cases = cluster_add_case(suite, "status");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, status_tells_which_worker_has_which_block, 0, G_N_ELEMENTS(shapes));
    tcase_add_test(cases, status_of_another_node_is_its_own_and_names_the_scheduler_s);
    tcase_add_test(cases, status_does_not_wait_for_a_node_that_stands_still);
    tcase_add_test(cases, status_tells_of_a_task_that_goes_on_without_a_lost_node);
    tcase_add_loop_test(cases, status_that_is_watched_knows_how_the_run_ends, 0, 2);
    tcase_add_test(cases, status_of_a_run_that_has_ended_is_refused);
    return run_suite(suite);
}
