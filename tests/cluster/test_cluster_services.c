/* Services between nodes: groups, large bodies, barriers, a node that dies, a stranger's bytes. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/control/control.h"
#include "engine/engine_private.h"
#include "engine/services/service_message.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

/* Nodes 3 (server), 7 (worker), 20 (both). */
static const ClusterShape THREE = { .n_nodes = 3, .nodes = { { 1, 0 }, { 0, 2 }, { 1, 1 } } };

static bool tell_id(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                    GError **error)
{
    (void)error;
    rubato_write_u32(answer, rubato_engine_node(user_data));
    rubato_write_u32(answer, request->node);
    rubato_write(answer, request->bytes, request->n_bytes);
    return true;
}

static bool refuse(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                   GError **error)
{
    (void)request;
    (void)answer;
    if (rubato_engine_node(user_data) != 7)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "not on a Sunday");
    return false;
}

/* ---- groups ---- */

static const struct {
    RubatoAddressees to;
    uint32_t ids[3]; /* 0: no more */
} groups[] = {
    { { .group = RUBATO_GROUP_ALL }, { 3, 7, 20 } },
    { { .group = RUBATO_GROUP_SERVERS }, { 3, 20 } },
    { { .group = RUBATO_GROUP_WORKERS }, { 7, 20 } },
    { { .group = RUBATO_GROUP_NODES, .nodes = (const uint32_t[]){ 20, 3 }, .n_nodes = 2 },
      { 3, 20 } },
    { { .group = RUBATO_GROUP_NODE, .number = 20 }, { 20 } },
    { { .group = RUBATO_GROUP_SERVER, .number = 1 }, { 20 } },
    { { .group = RUBATO_GROUP_WORKER, .number = 1 }, { 7 } },
};

static bool ask_group(RubatoEngine *engine, size_t i, GError **error)
{
    const RubatoQuestion question = {
        .service = "id", .to = groups[i].to, .bytes = "x", .n_bytes = 1
    };
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &question, error);
    RubatoServiceAnswer answer;
    uint32_t n = 0, n_wanted = 0;

    if (call == NULL)
        return false;
    while (n_wanted < 3 && groups[i].ids[n_wanted] != 0)
        n_wanted++;
    while (rubato_service_call_next(call, &answer)) {
        EXPECT(answer.error == NULL, "%s", answer.error->message);
        RubatoByteReader reader = rubato_byte_reader_of(answer.bytes);
        bool is_wanted = false;

        EXPECT(rubato_read_u32(&reader) == answer.node, "another node");
        EXPECT(rubato_read_u32(&reader) == rubato_engine_node(engine), "another asker");
        EXPECT(rubato_byte_reader_left(&reader) == 1, "%zu", rubato_byte_reader_left(&reader));
        for (uint32_t at = 0; at < n_wanted; at++)
            is_wanted |= groups[i].ids[at] == answer.node;
        EXPECT(is_wanted, "group %zu: node %u", i, answer.node);
        n++;
    }
    EXPECT(n == n_wanted, "group %zu: %u answers", i, n);
    return true;
}

static bool ask_groups(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    if (!rubato_engine_serve(engine, "id", tell_id, engine, error) ||
        !rubato_engine_serve(engine, "refuse", refuse, engine, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(groups); i++)
        if (!ask_group(engine, i, error))
            return false;

    /* one node's failure is that node's alone */
    const RubatoQuestion question = { .service = "refuse" };
    g_autoptr(GError) found = NULL;
    EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "all were asked as one");
    if (!cluster_expect_error(&found, RUBATO_ERROR_INVALID, "a group of 3 nodes", error))
        return false;
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &question, error);
    RubatoServiceAnswer answer;
    while (rubato_service_call_next(call, &answer)) {
        EXPECT((answer.error != NULL) == (answer.node == 7), "node %u", answer.node);
        if (answer.error != NULL)
            EXPECT(strstr(answer.error->message, "service refuse on node 7 (127.0.0.1:0): not on a "
                                                 "Sunday") != NULL,
                   "%s", answer.error->message);
    }
    return rubato_engine_barrier(engine, error);
}

START_TEST(each_group_is_asked)
{
    static const char *const transports[] = { "tcp", "shm", "zmq" };
    ClusterShape shape = THREE;

    shape.over = transports[_i];
    ClusterRun *run = cluster_run_new(&shape);
    cluster_start(run, ask_groups, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- large bodies ---- */

enum { LARGE = 9 << 20 }; /* more than two windows */

/* Requests whose deadline is over before they are whole, or answered, harm no others. */
static bool send_in_vain(RubatoEngine *engine, const RubatoQuestion *question, GError **error)
{
    RubatoQuestion hasty = *question, absent = *question;
    RubatoServiceAnswer answer;

    hasty.timeout_ms = 1;
    absent.service = "absent";
    for (int i = 0; i < 2; i++) {
        g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &hasty, error);
        while (rubato_service_call_next(call, &answer))
            EXPECT(answer.error == NULL ||
                       g_error_matches(answer.error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT),
                   "%s", answer.error->message);
    }
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &absent, error);
    while (rubato_service_call_next(call, &answer))
        EXPECT(g_error_matches(answer.error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND), "node %u",
               answer.node);
    return true;
}

/* Both ways at once, each node to all: nobody waits for somebody who waits for it. */
static bool send_large(RubatoEngine *engine, const void *data, GError **error)
{
    g_autofree uint8_t *bytes = g_malloc(LARGE);
    RubatoServiceAnswer answer;
    uint32_t n = 0;

    (void)data;
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (uint8_t)(i * 31 + rubato_engine_node(engine));
    if (!rubato_engine_serve(engine, "id", tell_id, engine, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    const RubatoQuestion question = { .service = "id", .bytes = bytes, .n_bytes = LARGE };
    if (!send_in_vain(engine, &question, error))
        return false;
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &question, error);
    while (rubato_service_call_next(call, &answer)) {
        gsize size;

        EXPECT(answer.error == NULL, "%s", answer.error->message);
        const uint8_t *const back = g_bytes_get_data(answer.bytes, &size);
        EXPECT(size == LARGE + 8 && memcmp(back + 8, bytes, LARGE) == 0, "%zu bytes", size);
        n++;
    }
    EXPECT(n == 3, "%u answers", n);
    return rubato_engine_barrier(engine, error);
}

START_TEST(bodies_beyond_any_window_cross_each_other)
{
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, send_large, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- barriers ---- */

/* The workers' nodes pass theirs often while the third node does nothing; one that does not come is
 * timed out, and leaves the next barrier as it was. */
static bool pass_barriers(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoAddressees workers = { .group = RUBATO_GROUP_WORKERS };
    const bool is_worker = rubato_engine_node(engine) != 3;
    g_autoptr(GError) found = NULL;

    (void)data;
    if (!is_worker) {
        EXPECT(!rubato_engine_group_barrier(engine, &workers, 0, &found), "a stranger passed");
        if (!cluster_expect_error(&found, RUBATO_ERROR_INVALID, "node 3 is not in the group",
                                  error))
            return false;
    }
    if (rubato_engine_node(engine) == 7) {
        EXPECT(!rubato_engine_group_barrier(engine, &workers, 50, &found), "it passed alone");
        if (!cluster_expect_error(&found, RUBATO_ERROR_TIMEOUT, "no answer within", error))
            return false;
    }
    if (!rubato_engine_barrier(engine, error))
        return false;
    for (int i = 0; is_worker && i < 20; i++)
        if (!rubato_engine_group_barrier(engine, &workers, 0, error))
            return false;
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_group_passes_its_own_barriers)
{
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, pass_barriers, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- death ---- */

static bool die(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                GError **error)
{
    (void)request;
    (void)answer;
    (void)error;
    if (rubato_engine_node(user_data) == 7)
        raise(SIGSTOP);
    return true;
}

static bool outlive(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoQuestion question = { .service = "die",
                                      .to = { .group = RUBATO_GROUP_NODE, .number = 7 } };
    g_autoptr(GError) found = NULL;
    bool is_listed = false;
    size_t n;

    (void)data;
    if (!rubato_engine_serve(engine, "die", die, engine, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == 7)
        for (;;)
            pause();
    EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "an answer of the dead");
    if (!cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, "node 7 (127.0.0.1:0) was lost",
                              error))
        return false;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    for (size_t i = 0; i < n; i++)
        if (states[i].is_lost)
            is_listed = states[i].node == 7 && states[i].lost_us > 0 &&
                        strstr(states[i].why, "was lost") != NULL;
    rubato_node_states_free(states, n);
    EXPECT(is_listed, "node 7 is not listed as lost");
    /* and no later call hangs */
    EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "an answer of the dead");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, "node 7", error);
}

/* docs/liveness.md: A request to a service */
START_TEST(a_dead_nodes_answer_names_it)
{
    ClusterShape shape = THREE;

    shape.timeout_ms = cluster_short_timeout_ms();
    shape.stall_ms = 200;
    ClusterRun *run = cluster_run_new(&shape);
    cluster_start(run, outlive, NULL);
    cluster_wait_for(run, 0, "waits for service die on node 7 (127.0.0.1:0)");
    cluster_signal(run, 1, SIGKILL);
    cluster_expect_end(run, 1, -SIGKILL);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 2, 0);
    cluster_run_free(run);
}
END_TEST

/* ---- strangers ---- */

/* What a node that does not do what nodes do may send as a MESSAGE_SERVICE, after it has answered
 * request 1. */
static const struct {
    ServiceMessage messages[2];
    uint32_t n_times; /* the first one, with one serial after another; 0: once */
    const char *text;
} lies[] = {
    { { { .kind = SERVICE_MESSAGE_ANSWER, .serial = 99, .bytes = "" } },
      0,
      "an answer to a request that was never made" },
    { { { .kind = SERVICE_MESSAGE_ANSWER, .serial = 1, .bytes = "" } },
      0,
      "a second answer to a request" },
    { { { .kind = SERVICE_MESSAGE_REQUEST,
          .serial = 1,
          .name = "x",
          .n_whole = 9,
          .offset = 4,
          .bytes = "12345",
          .n_bytes = 5 } },
      0,
      "a piece of a request without those before it" },
    { { { .kind = SERVICE_MESSAGE_REQUEST,
          .serial = 1,
          .name = "x",
          .n_whole = 9,
          .bytes = "12345",
          .n_bytes = 5 },
        { .kind = SERVICE_MESSAGE_REQUEST,
          .serial = 1,
          .name = "x",
          .n_whole = 10,
          .offset = 5,
          .bytes = "12345",
          .n_bytes = 5 } },
      0,
      "a piece of a request out of its order" },
    { { { .kind = SERVICE_MESSAGE_REQUEST,
          .serial = 1,
          .name = "x",
          .n_whole = 2,
          .bytes = "1",
          .n_bytes = 1 } },
      2049,
      "more requests to services than a node may have open" },
    { { { .kind = (ServiceMessageKind)77, .bytes = "" } }, 0, "of a kind that there is not" },
    { { { .kind = SERVICE_MESSAGE_REQUEST,
          .serial = 1,
          .name = "x",
          .bytes = "123",
          .n_bytes = 3 } },
      0,
      "not inside" },
};

static void send_lie(RubatoEngine *engine, ServiceMessage message)
{
    const size_t n = service_message_size(&message);
    Frame *const frame = frame_new(&(WireHeader){ .kind = MESSAGE_SERVICE, .value_bytes = n });

    service_message_write(&message, frame_values(frame));
    network_send(engine->network, 0, frame);
}

static bool lie(RubatoEngine *engine, const void *data, GError **error)
{
    const size_t i = *(const size_t *)data;
    const RubatoQuestion question = { .service = "absent",
                                      .to = { .group = RUBATO_GROUP_NODE, .number = 7 } };
    g_autoptr(GError) found = NULL;

    if (rubato_engine_node(engine) != 7) {
        EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "an answer");
        if (!cluster_expect_error(&found, RUBATO_ERROR_NOT_FOUND, "no such service", error))
            return false;
    }
    if (!rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == 7) {
        ServiceMessage first = lies[i].messages[0];

        for (uint32_t time = 0; time < MAX(lies[i].n_times, 1); time++, first.serial++)
            send_lie(engine, first);
        if (lies[i].messages[1].kind != 0)
            send_lie(engine, lies[i].messages[1]);
    }
    EXPECT(!rubato_engine_barrier(engine, &found), "nobody noticed");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, "", error);
}

START_TEST(a_liar_is_lost_and_named)
{
    const size_t i = (size_t)_i;
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, lie, &i);
    cluster_expect_end(run, 0, 0);
    cluster_expect_text(run, 0, lies[i].text);
    cluster_signal(run, 1, SIGKILL); /* it would wait for its own timeout */
    cluster_expect_end(run, 1, -SIGKILL);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_services");
    TCase *cases = cluster_add_case(suite, "cases");

    tcase_add_loop_test(cases, each_group_is_asked, 0, 3);
    tcase_add_test(cases, bodies_beyond_any_window_cross_each_other);
    tcase_add_test(cases, a_group_passes_its_own_barriers);
    tcase_add_test(cases, a_dead_nodes_answer_names_it);
    tcase_add_loop_test(cases, a_liar_is_lost_and_named, 0, G_N_ELEMENTS(lies));
    return run_suite(suite);
}
