/* Services within a process: answers, failures, deadlines, order, and what a stranger may send. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "engine/control/control.h"
#include "engine/services/service_message.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static RubatoEngine *engine;

static void begin(void)
{
    engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .workers = 2, .stall_ms = 50 },
                               NULL);
    ck_assert_ptr_nonnull(engine);
}

static void end(void)
{
    rubato_engine_free(engine);
}

static bool echo(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                 GError **error)
{
    (void)user_data;
    (void)error;
    rubato_write(answer, request->bytes, request->n_bytes);
    return true;
}

static bool say_no(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                   GError **error)
{
    (void)request;
    (void)answer;
    (void)user_data;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the disk is full");
    return false;
}

/* Waits until the case lets it go. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_in, may_go;
} Gate;

static bool wait_at_gate(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                         void *user_data, GError **error)
{
    Gate *const gate = user_data;

    (void)request;
    (void)answer;
    (void)error;
    pthread_mutex_lock(&gate->lock);
    gate->is_in = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->may_go)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    return true;
}

static void open_gate(Gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->may_go = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static RubatoQuestion question_to(const char *service, const char *text)
{
    return (RubatoQuestion){ .service = service, .bytes = text, .n_bytes = strlen(text) };
}

static void expect_failure(const char *service, uint32_t timeout_ms, RubatoError code,
                           const char *text)
{
    RubatoQuestion question = question_to(service, "?");
    GError *error = NULL;

    question.timeout_ms = timeout_ms;
    ck_assert(!rubato_engine_ask(engine, &question, NULL, &error));
    check_error(&error, code, text, service, "node 0", NULL);
}

START_TEST(service_answers_bytes_of_any_size)
{
    static const size_t sizes[] = { 0, 1, 4096, SERVICE_PIECE_BYTES + 1 };
    GError *error = NULL;

    ck_assert(rubato_engine_serve(engine, "echo", echo, NULL, &error));
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autofree uint8_t *bytes = g_malloc(sizes[i] + 1);
        g_autoptr(GBytes) answer = NULL;

        memset(bytes, (int)i + 1, sizes[i]);
        const RubatoQuestion question = { .service = "echo", .bytes = bytes, .n_bytes = sizes[i] };
        ck_assert(rubato_engine_ask(engine, &question, &answer, &error));
        ck_assert_uint_eq(g_bytes_get_size(answer), sizes[i]);
        ck_assert(sizes[i] == 0 || memcmp(g_bytes_get_data(answer, NULL), bytes, sizes[i]) == 0);
    }
}
END_TEST

START_TEST(service_that_fails_says_so_to_its_caller)
{
    ck_assert(rubato_engine_serve(engine, "fails", say_no, NULL, NULL));
    expect_failure("fails", 0, RUBATO_ERROR_SERVICE, "the disk is full");
    expect_failure("nobody", 0, RUBATO_ERROR_NOT_FOUND, "this node has no such service");
    ck_assert(rubato_engine_unserve(engine, "fails", NULL));
    expect_failure("fails", 0, RUBATO_ERROR_NOT_FOUND, "this node has no such service");
}
END_TEST

START_TEST(names_are_checked)
{
    char name[RUBATO_SERVICE_NAME_BYTES + 1];
    const char *const wrong[] = { "", "rubato.barrier", name, "\xff" };
    GError *error = NULL;

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        ck_assert(!rubato_engine_serve(engine, wrong[i], echo, NULL, &error));
        check_error(&error, RUBATO_ERROR_INVALID, "is no name for a service", NULL);
    }
    ck_assert(rubato_engine_serve(engine, "echo", echo, NULL, NULL));
    ck_assert(!rubato_engine_serve(engine, "echo", echo, NULL, &error));
    check_error(&error, RUBATO_ERROR_EXISTS, "echo", NULL);
    ck_assert(!rubato_engine_unserve(engine, "other", &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "other", NULL);
}
END_TEST

/* One that hangs holds up neither another service nor its caller beyond the deadline, and what was
 * asked of it stays bounded. */
START_TEST(service_that_hangs_ends_its_caller_by_the_deadline)
{
    static Gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };
    const RubatoQuestion patient = { .service = "hangs" };
    g_autoptr(GError) error = NULL;
    RubatoServiceAnswer answer;

    ck_assert(rubato_engine_serve(engine, "hangs", wait_at_gate, &gate, NULL));
    ck_assert(rubato_engine_serve(engine, "echo", echo, NULL, NULL));
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(engine, &patient, &error);
    ck_assert_ptr_nonnull(call);
    expect_failure("hangs", 1, RUBATO_ERROR_TIMEOUT, "no answer within");
    const RubatoQuestion question = question_to("echo", "x");
    ck_assert(rubato_engine_ask(engine, &question, NULL, &error));
    open_gate(&gate);
    ck_assert(rubato_service_call_next(call, &answer));
    ck_assert_ptr_null(answer.error);
    ck_assert(!rubato_service_call_next(call, &answer));
}
END_TEST

/* More requests than may be open: the further ones wait for room until their deadline. */
START_TEST(open_requests_are_bounded)
{
    enum { N = 1024 };
    static Gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };
    RubatoServiceCall *calls[N];
    const RubatoQuestion question = { .service = "hangs", .timeout_ms = 60000 };

    ck_assert(rubato_engine_serve(engine, "hangs", wait_at_gate, &gate, NULL));
    for (size_t i = 0; i < N; i++)
        calls[i] = rubato_engine_request(engine, &question, NULL);
    expect_failure("hangs", 20, RUBATO_ERROR_TIMEOUT, "too many requests");
    open_gate(&gate);
    for (size_t i = 0; i < N; i++)
        rubato_service_call_free(calls[i]);
    /* those that nobody waits for are answered, too: then there is room again */
    const RubatoQuestion last = { .service = "hangs", .timeout_ms = 60000 };
    ck_assert(rubato_engine_ask(engine, &last, NULL, NULL));
}
END_TEST

/* ---- a task that fails ---- */

static Gate task_gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };

/* Worker 0 waits for an answer that does not come. Worker 1 fails once the service runs. */
static bool ask_or_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoQuestion question = { .service = "hangs", .timeout_ms = UINT32_MAX };

    for (int i = 0; rubato_worker_rank(worker) == 0 && i < 2; i++) {
        /* the second one finds the task cancelled already */
        g_autoptr(GError) found = NULL;
        const bool got = rubato_engine_ask(user_data, &question, NULL, &found);

        if (got || !g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_CANCELLED) ||
            strstr(found->message, "the task was cancelled") == NULL)
            g_error("another end: %s", found != NULL ? found->message : "an answer");
    }
    pthread_mutex_lock(&task_gate.lock);
    while (!task_gate.is_in)
        pthread_cond_wait(&task_gate.changed, &task_gate.lock);
    pthread_mutex_unlock(&task_gate.lock);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker %u has had enough",
                rubato_worker_rank(worker));
    return false;
}

/* docs/liveness.md: A request to a service */
START_TEST(a_task_that_fails_ends_the_requests_of_its_workers)
{
    const RubatoTask task = { .name = "ask", .run = ask_or_fail, .user_data = engine };
    const RubatoQuestion again = { .service = "hangs" };
    GError *error = NULL;

    ck_assert(rubato_engine_serve(engine, "hangs", wait_at_gate, &task_gate, NULL));
    ck_assert(!rubato_engine_run(engine, &task, &error));
    check_error(&error, RUBATO_ERROR_TASK_FAILED, "worker 1 has had enough", NULL);
    open_gate(&task_gate);
    ck_assert(rubato_engine_ask(engine, &again, NULL, &error));
}
END_TEST

/* ---- groups, the end ---- */

START_TEST(one_is_asked_not_a_group)
{
    const RubatoQuestion question = { .service = "echo",
                                      .to = { .group = RUBATO_GROUP_NODES, .n_nodes = 0 } };
    GError *error = NULL;

    ck_assert(!rubato_engine_ask(engine, &question, NULL, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "a group of 0 nodes", NULL);
}
END_TEST

START_TEST(a_group_of_one_passes_its_barrier)
{
    const RubatoAddressees all = { .group = RUBATO_GROUP_ALL };
    const uint32_t twice[] = { 0, 0 };
    const RubatoAddressees list = { .group = RUBATO_GROUP_NODES, .nodes = twice, .n_nodes = 2 };
    const RubatoAddressees none = { .group = RUBATO_GROUP_WORKER, .number = 2 };
    GError *error = NULL;

    for (int i = 0; i < 3; i++)
        ck_assert(rubato_engine_group_barrier(engine, &all, 0, &error));
    ck_assert(!rubato_engine_group_barrier(engine, &list, 0, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "node 0 is twice", NULL);
    ck_assert(!rubato_engine_group_barrier(engine, &none, 0, &error));
    check_error(&error, RUBATO_ERROR_RANGE, "this run has no worker 2", NULL);
}
END_TEST

static char order[4];

static void note(void *user_data)
{
    g_strlcat(order, user_data, sizeof order);
}

static void ask_and_note(void *user_data)
{
    const RubatoQuestion question = question_to("echo", "x");

    ck_assert(rubato_engine_ask(user_data, &question, NULL, NULL));
    g_strlcat(order, "c", sizeof order);
}

START_TEST(exit_functions_run_last_first_while_services_answer)
{
    rubato_engine_at_exit(engine, note, "a");
    rubato_engine_at_exit(engine, note, "b");
    rubato_engine_at_exit(engine, ask_and_note, engine);
    ck_assert(rubato_engine_serve(engine, "echo", echo, NULL, NULL));
    rubato_engine_free(engine);
    ck_assert_str_eq(order, "cba");
    begin();
}
END_TEST

/* ---- ends that would wait for themselves ---- */

static bool end_named(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                      void *user_data, GError **error)
{
    (void)request;
    (void)answer;
    return rubato_engine_unserve(engine, user_data, error);
}

START_TEST(a_service_cannot_end_itself)
{
    ck_assert(rubato_engine_serve(engine, "phoenix", end_named, "phoenix", NULL));
    expect_failure("phoenix", 0, RUBATO_ERROR_SERVICE, "service phoenix cannot end itself");
    expect_failure("phoenix", 0, RUBATO_ERROR_SERVICE, "call rubato_engine_unserve from outside");
    ck_assert(rubato_engine_unserve(engine, "phoenix", NULL));
}
END_TEST

typedef struct {
    Gate gate;
    bool is_refused;
} Pair;

/* It ends "right", which has begun to run: so it waits for that. */
static bool end_right(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                      void *user_data, GError **error)
{
    (void)request;
    (void)answer;
    (void)user_data;
    return rubato_engine_unserve(engine, "right", error);
}

/* It ends "left" as soon as that ends it: its name is free from then on. */
static bool end_left(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                     GError **error)
{
    Pair *const pair = user_data;
    GError *failure = NULL;

    if (!wait_at_gate(request, answer, &pair->gate, error))
        return false;
    while (!rubato_engine_serve(engine, "right", echo, NULL, NULL))
        sched_yield(); /* ends: end_right marks it as ending, and then waits */
    pair->is_refused = !rubato_engine_unserve(engine, "left", &failure) &&
                       is_error(&failure, RUBATO_ERROR_INVALID,
                                "service right cannot end service left, which waits");
    return true;
}

static RubatoServiceCall *send_to(const char *service)
{
    const RubatoQuestion question = question_to(service, "?");
    RubatoServiceCall *const call = rubato_engine_request(engine, &question, NULL);

    ck_assert_ptr_nonnull(call);
    return call;
}

/* Else both would wait for ever. */
START_TEST(two_services_cannot_end_each_other)
{
    Pair pair = { .gate = { .lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER } };
    RubatoServiceAnswer answer;

    ck_assert(rubato_engine_serve(engine, "left", end_right, NULL, NULL));
    ck_assert(rubato_engine_serve(engine, "right", end_left, &pair, NULL));
    g_autoptr(RubatoServiceCall) right = send_to("right");
    pthread_mutex_lock(&pair.gate.lock);
    while (!pair.gate.is_in)
        pthread_cond_wait(&pair.gate.changed, &pair.gate.lock);
    pthread_mutex_unlock(&pair.gate.lock);
    g_autoptr(RubatoServiceCall) left = send_to("left");
    open_gate(&pair.gate);
    ck_assert(rubato_service_call_next(left, &answer) && answer.error == NULL);
    ck_assert(rubato_service_call_next(right, &answer) && answer.error == NULL);
    ck_assert(pair.is_refused);
}
END_TEST

static bool free_engine(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                        void *user_data, GError **error)
{
    (void)request;
    (void)answer;
    (void)user_data;
    (void)error;
    rubato_engine_free(engine);
    return true;
}

START_TEST(a_service_cannot_free_its_engine)
{
    const RubatoQuestion question = question_to("axe", "?");

    log_capture_start();
    ck_assert(rubato_engine_serve(engine, "axe", free_engine, NULL, NULL));
    ck_assert(rubato_engine_ask(engine, &question, NULL, NULL));
    ck_assert_uint_eq(log_capture_count("rubato_engine_free: called from a service, whose end it "
                                        "waits for; call it from outside; the engine was not "
                                        "freed"),
                      1);
    ck_assert(rubato_engine_unserve(engine, "axe", NULL)); /* it is there still */
}
END_TEST

static void free_at_exit(void *user_data)
{
    (void)user_data;
    rubato_engine_free(engine);
}

START_TEST(an_exit_function_cannot_free_its_engine)
{
    log_capture_start();
    rubato_engine_at_exit(engine, free_at_exit, NULL);
    rubato_engine_free(engine);
    ck_assert_uint_eq(log_capture_count("the engine is being freed already, as in an exit "
                                        "function; the engine was not freed"),
                      1);
    begin();
}
END_TEST

START_TEST(nodes_are_listed)
{
    size_t n;
    RubatoNodeState *states = rubato_engine_list_nodes(engine, &n);

    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(states[0].servers, 2);
    ck_assert_uint_eq(states[0].workers, 2);
    ck_assert(!states[0].is_lost);
    ck_assert_ptr_null(states[0].why);
    rubato_node_states_free(states, n);
}
END_TEST

/* ---- bytes ---- */

static const ServiceMessage MESSAGES[] = {
    { .kind = SERVICE_MESSAGE_REQUEST,
      .serial = 7,
      .n_whole = 5,
      .name = "echo",
      .bytes = "12345",
      .n_bytes = 5 },
    { .kind = SERVICE_MESSAGE_REQUEST, .serial = 8, .name = "e", .bytes = "" },
    { .kind = SERVICE_MESSAGE_ANSWER,
      .serial = 7,
      .n_whole = 9,
      .offset = 4,
      .bytes = "12345",
      .n_bytes = 5 },
    { .kind = SERVICE_MESSAGE_ANSWER,
      .code = CONTROL_CODE(RUBATO_ERROR_TIMEOUT),
      .serial = 7,
      .n_whole = 2,
      .bytes = "no",
      .n_bytes = 2 },
    { .kind = SERVICE_MESSAGE_FORGET, .serial = 7, .bytes = "" },
};

START_TEST(a_failure_in_pieces_is_refused)
{
    const ServiceMessage piece = { .kind = SERVICE_MESSAGE_ANSWER,
                                   .code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                   .serial = 7,
                                   .n_whole = 9,
                                   .offset = 4,
                                   .bytes = "12345",
                                   .n_bytes = 5 };
    g_autofree uint8_t *bytes = g_malloc(service_message_size(&piece));
    ServiceMessage read;

    service_message_write(&piece, bytes);
    ck_assert_str_eq(service_message_read(bytes, service_message_size(&piece), &read),
                     "a failure of a service in pieces");
}
END_TEST

START_TEST(service_message_comes_back_as_it_was)
{
    const ServiceMessage *const sent = &MESSAGES[_i];
    const size_t n = service_message_size(sent);
    g_autofree uint8_t *bytes = g_malloc(n);
    ServiceMessage read;

    service_message_write(sent, bytes);
    ck_assert_ptr_null(service_message_read(bytes, n, &read));
    ck_assert_int_eq(read.kind, sent->kind);
    ck_assert_uint_eq(read.code, sent->code);
    ck_assert_uint_eq(read.serial, sent->serial);
    ck_assert_uint_eq(read.n_whole, sent->n_whole);
    ck_assert_uint_eq(read.offset, sent->offset);
    ck_assert_uint_eq(read.n_bytes, sent->n_bytes);
    ck_assert_mem_eq(read.bytes, sent->bytes, sent->n_bytes);
    if (sent->name != NULL)
        ck_assert_str_eq(read.name, sent->name);
    /* A cut piece is a piece, but a cut header is none. Each is exactly as long as it is, so that a
     * sanitizer sees more. */
    for (size_t cut = 0; cut < n; cut++) {
        g_autofree uint8_t *part = g_memdup2(bytes, cut);
        const char *const wrong = service_message_read(part, cut, &read);

        ck_assert(wrong != NULL || (cut > n - sent->n_bytes && read.n_bytes < sent->n_bytes));
    }
}
END_TEST

static const struct {
    size_t at;
    uint8_t byte;
    const char *text;
} damages[] = {
    { 0, 0, "of a kind that there is not" },
    { 0, 9, "of a kind that there is not" },
    { 4, 1, "a request to a service that has failed" },
    { 19, 0xff, "too large" },
    { 24, 1, "not inside" },
    { 31, 0xff, "not inside" },
    { 32, 0, "name is damaged" },
    { 33, 0xff, "name is damaged" },
};

START_TEST(damaged_service_message_is_refused)
{
    const size_t n = service_message_size(&MESSAGES[0]);
    g_autofree uint8_t *bytes = g_malloc(n);
    ServiceMessage read;

    service_message_write(&MESSAGES[0], bytes);
    bytes[damages[_i].at] = damages[_i].byte;
    const char *const wrong = service_message_read(bytes, n, &read);
    ck_assert_msg(wrong != NULL && strstr(wrong, damages[_i].text) != NULL, "%s",
                  wrong != NULL ? wrong : "taken");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("services");
    TCase *cases = tcase_create("engine"), *bytes = tcase_create("bytes");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, service_answers_bytes_of_any_size);
    tcase_add_test(cases, service_that_fails_says_so_to_its_caller);
    tcase_add_test(cases, names_are_checked);
    tcase_add_test(cases, service_that_hangs_ends_its_caller_by_the_deadline);
    tcase_add_test(cases, open_requests_are_bounded);
    tcase_add_test(cases, a_task_that_fails_ends_the_requests_of_its_workers);
    tcase_add_test(cases, one_is_asked_not_a_group);
    tcase_add_test(cases, a_group_of_one_passes_its_barrier);
    tcase_add_test(cases, exit_functions_run_last_first_while_services_answer);
    tcase_add_test(cases, a_service_cannot_end_itself);
    tcase_add_test(cases, two_services_cannot_end_each_other);
    tcase_add_test(cases, a_service_cannot_free_its_engine);
    tcase_add_test(cases, an_exit_function_cannot_free_its_engine);
    tcase_add_test(cases, nodes_are_listed);
    tcase_add_loop_test(bytes, service_message_comes_back_as_it_was, 0, G_N_ELEMENTS(MESSAGES));
    tcase_add_test(bytes, a_failure_in_pieces_is_refused);
    tcase_add_loop_test(bytes, damaged_service_message_is_refused, 0, G_N_ELEMENTS(damages));
    suite_add_tcase(suite, cases);
    suite_add_tcase(suite, bytes);
    return run_suite(suite);
}
