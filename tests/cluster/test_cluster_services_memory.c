/* Services on nodes that have too little memory, or that keep too much already. Who asks is told,
 * nobody else is concerned, and the next request is answered.
 *
 * The linker puts __wrap_network_new_frame in place of network_new_frame: there is no memory for
 * some messages of services. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/services/service_message.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

enum { ASKS, SERVES, LARGE = 5 * (256 << 10) }; /* bytes of five pieces */

/* ---- memory that runs out ---- */

/* The first message of a service that finds no memory, counted from 1, and how many in a row. */
typedef struct {
    uint32_t first, n;
} Shortage;

static _Atomic uint32_t n_asked, first_failing, n_failing;

static void begin_shortage(const Shortage *shortage)
{
    n_asked = 0;
    n_failing = shortage->n;
    first_failing = shortage->first;
}

__typeof__(network_new_frame) __real_network_new_frame, __wrap_network_new_frame;
Frame *__wrap_network_new_frame(Network *network, const WireHeader *header)
{
    if (header->kind == MESSAGE_SERVICE && first_failing > 0) {
        const uint32_t number = ++n_asked;

        if (number >= first_failing && number - first_failing < n_failing)
            return NULL;
    }
    return __real_network_new_frame(network, header);
}

/* ---- asking ---- */

static RubatoQuestion question_of(const char *service, const void *bytes, size_t n)
{
    return (RubatoQuestion){ .service = service,
                             .to = { .group = RUBATO_GROUP_NODE, .number = 7 },
                             .bytes = bytes,
                             .n_bytes = n };
}

static bool expect_answer(RubatoEngine *engine, const RubatoQuestion *question, size_t n,
                          GError **error)
{
    g_autoptr(GBytes) answer = NULL;

    if (!rubato_engine_ask(engine, question, &answer, error))
        return false;
    EXPECT(g_bytes_get_size(answer) == n, "%zu bytes", g_bytes_get_size(answer));
    return true;
}

static bool expect_no_memory(RubatoEngine *engine, const RubatoQuestion *question, const char *text,
                             GError **error)
{
    g_autoptr(GError) found = NULL;

    EXPECT(!rubato_engine_ask(engine, question, NULL, &found), "an answer");
    return cluster_expect_error(&found, RUBATO_ERROR_MEMORY, text, error);
}

/* ---- no memory for an answer ---- */

/* The second one is the failure that stands in place of the answer. */
static const Shortage answer_shortages[] = { { 1, 1 }, { 3, 1 }, { 3, 3 } };

/* Its first answer finds no memory. */
static bool answer_large(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                         void *user_data, GError **error)
{
    static bool was_called;
    g_autofree uint8_t *bytes = g_malloc0(LARGE);

    (void)request;
    (void)error;
    rubato_write(answer, bytes, LARGE);
    if (!was_called)
        begin_shortage(user_data);
    was_called = true;
    return true;
}

static bool ask_for_large(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoQuestion question = question_of("large", NULL, 0);

    if (!rubato_engine_serve(engine, "large", answer_large, (void *)(uintptr_t)data, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[ASKS] &&
        (!expect_no_memory(
             engine, &question,
             "service large on node 7 (127.0.0.1:0): no memory there for its answer of 1310720",
             error) ||
         !expect_answer(engine, &question, LARGE, error)))
        return false;
    return rubato_engine_barrier(engine, error);
}

/* docs/liveness.md: A request to a service */
START_TEST(a_node_without_memory_for_an_answer_says_so)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, ask_for_large, &answer_shortages[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- no memory for a request ---- */

/* The second one is the word that the request is not to be waited for. */
static const Shortage request_shortages[] = { { 1, 1 }, { 3, 1 }, { 3, 3 } };

static bool count_bytes(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                        void *user_data, GError **error)
{
    (void)user_data;
    (void)error;
    return rubato_write_u32(answer, (uint32_t)request->n_bytes);
}

/* A node that kept the first request would have no room for the second. */
static bool ask_in_vain(RubatoEngine *engine, const void *data, GError **error)
{
    g_autofree uint8_t *bytes = g_malloc0(LARGE);
    const RubatoQuestion question = question_of("count", bytes, LARGE);

    if (!rubato_engine_serve(engine, "count", count_bytes, NULL, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[ASKS]) {
        begin_shortage(data);
        if (!expect_no_memory(
                engine, &question,
                "service count on node 7 (127.0.0.1:0): no memory to send the request", error) ||
            !expect_answer(engine, &question, 4, error))
            return false;
    }
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_request_for_which_there_is_no_memory_is_forgotten)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .service_mib = 2 });

    cluster_start(run, ask_in_vain, &request_shortages[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- what a node keeps of another one's requests ---- */

enum { MIB = 1 << 20, LESS = 600 << 10 }; /* bytes */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool is_open;

static bool wait_at_gate(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                         void *user_data, GError **error)
{
    (void)request;
    (void)answer;
    (void)user_data;
    (void)error;
    pthread_mutex_lock(&gate);
    while (!is_open)
        pthread_cond_wait(&opened, &gate);
    pthread_mutex_unlock(&gate);
    return true;
}

static bool open_gate(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                      void *user_data, GError **error)
{
    (void)request;
    (void)answer;
    (void)user_data;
    (void)error;
    pthread_mutex_lock(&gate);
    is_open = true;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&gate);
    return true;
}

/* Beside a request that is kept, a second one is refused, until the first is answered. */
static bool ask_beside(RubatoEngine *engine, const uint8_t *bytes, GError **error)
{
    const RubatoQuestion first = question_of("wait", bytes, LESS);
    const RubatoQuestion second = question_of("count", bytes, LESS);
    const RubatoQuestion release = question_of("open", NULL, 0);
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &first, error);
    RubatoServiceAnswer answer;

    if (call == NULL ||
        !expect_no_memory(engine, &second, "614400 bytes beside 614400 are more", error) ||
        !rubato_engine_ask(engine, &release, NULL, error))
        return false;
    EXPECT(rubato_service_call_next(call, &answer) && answer.error == NULL, "%s",
           answer.error->message);
    return expect_answer(engine, &second, 4, error);
}

/* The same for requests to the node that asks: what is answered no longer counts. */
static bool expect_own_to_be_bounded(RubatoEngine *engine, const uint8_t *bytes, GError **error)
{
    RubatoQuestion first = question_of("wait", bytes, LESS);
    RubatoQuestion second = question_of("count", bytes, LESS);
    RubatoQuestion release = question_of("open", NULL, 0);
    RubatoServiceAnswer answer;

    first.to.number = second.to.number = release.to.number = 3;
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &first, error);
    if (call == NULL ||
        !expect_no_memory(engine, &second, "614400 bytes beside 614400 are more", error) ||
        !rubato_engine_ask(engine, &release, NULL, error))
        return false;
    EXPECT(rubato_service_call_next(call, &answer) && answer.error == NULL, "%s",
           answer.error->message);
    return expect_answer(engine, &second, 4, error);
}

static bool ask_too_much(RubatoEngine *engine, const void *data, GError **error)
{
    g_autofree uint8_t *bytes = g_malloc0(MIB + 1);
    const RubatoQuestion most = question_of("count", bytes, MIB);
    const RubatoQuestion more = question_of("count", bytes, MIB + 1);
    RubatoQuestion own = more;

    (void)data;
    own.to.number = 3;
    if (!rubato_engine_serve(engine, "count", count_bytes, NULL, error) ||
        !rubato_engine_serve(engine, "wait", wait_at_gate, NULL, error) ||
        !rubato_engine_serve(engine, "open", open_gate, NULL, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[ASKS] &&
        (!expect_answer(engine, &most, 4, error) ||
         !expect_no_memory(engine, &more,
                           "it keeps at most 1 MiB of another node's requests (service_mib in the "
                           "cluster file); 1048577 bytes beside 0 are more",
                           error) ||
         !expect_answer(engine, &most, 4, error) ||
         !expect_no_memory(engine, &own,
                           "it keeps at most 1 MiB of its own requests (service_mib in the cluster "
                           "file); 1048577 bytes beside 0 are more",
                           error) ||
         !expect_own_to_be_bounded(engine, bytes, error) || !ask_beside(engine, bytes, error)))
        return false;
    return rubato_engine_barrier(engine, error);
}

START_TEST(what_a_node_keeps_of_requests_is_bounded)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .service_mib = 1 });

    cluster_start(run, ask_too_much, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- no thread ---- */

static _Atomic bool has_no_threads;

__typeof__(pthread_create) __real_pthread_create, __wrap_pthread_create;
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *user)
{
    return has_no_threads ? EAGAIN : __real_pthread_create(thread, attributes, function, user);
}

static bool expect_failure(RubatoEngine *engine, uint32_t node, const char *service,
                           RubatoError code, const char *text, GError **error)
{
    RubatoQuestion question = question_of(service, NULL, 0);
    GError *found = NULL;

    question.to.number = node;
    EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "an answer");
    return cluster_expect_error(&found, code, text, error);
}

/* Nobody has asked for a service before, so there is no thread that says that there is none. */
static bool ask_without_threads(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoAddressees all = { .group = RUBATO_GROUP_ALL };
    const bool asks = rubato_engine_node(engine) == CLUSTER_IDS[ASKS];
    GError *found = NULL;

    (void)data;
    has_no_threads = true;
    if (!rubato_engine_barrier(engine, error))
        return false;
    if (asks && (!expect_failure(engine, 7, "count", RUBATO_ERROR_NOT_FOUND,
                                 "service count on node 7 (127.0.0.1:0): this node has no such "
                                 "service",
                                 error) ||
                 !expect_failure(engine, 3, "count", RUBATO_ERROR_NOT_FOUND,
                                 "this node has no such service", error)))
        return false;
    EXPECT(!rubato_engine_group_barrier(engine, &all, 0, &found), "a barrier");
    if (!cluster_expect_error(&found, RUBATO_ERROR_MEMORY, "no thread there that could answer it",
                              error))
        return false;
    EXPECT(!rubato_engine_serve(engine, "count", count_bytes, NULL, &found), "it serves");
    if (!cluster_expect_error(&found, RUBATO_ERROR_MEMORY, "no thread for service count", error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    has_no_threads = false;
    return rubato_engine_barrier(engine, error) &&
           rubato_engine_serve(engine, "count", count_bytes, NULL, error) &&
           rubato_engine_group_barrier(engine, &all, 0, error) &&
           (!asks ||
            expect_answer(engine,
                          &(RubatoQuestion){ .service = "count",
                                             .to = { .group = RUBATO_GROUP_NODE, .number = 7 } },
                          4, error)) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(a_node_that_gets_no_thread_for_services_says_so_and_goes_on)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, ask_without_threads, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_services_memory");
    TCase *cases = cluster_add_case(suite, "cases");

    tcase_add_loop_test(cases, a_node_without_memory_for_an_answer_says_so, 0,
                        G_N_ELEMENTS(answer_shortages));
    tcase_add_loop_test(cases, a_request_for_which_there_is_no_memory_is_forgotten, 0,
                        G_N_ELEMENTS(request_shortages));
    tcase_add_test(cases, what_a_node_keeps_of_requests_is_bounded);
    tcase_add_test(cases, a_node_that_gets_no_thread_for_services_says_so_and_goes_on);
    return run_suite(suite);
}
