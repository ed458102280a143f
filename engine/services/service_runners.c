/* The threads that run services: one for each service, and the clerk, which answers what no service
 * does. See services.h.
 *
 * Threads: those named above; other functions say which. */
#include "engine/services/services_private.h"

#include <string.h>

#include "io/net/log_sink.h"
#include "io/net/stall_clock.h"

ServiceRunner *service_runner_find(const Services *services, const char *name)
{
    for (guint i = 1; i < services->runners->len; i++) {
        ServiceRunner *const runner = g_ptr_array_index(services->runners, i);

        if (strcmp(runner->name, name) == 0 && !runner->is_ending)
            return runner;
    }
    return NULL;
}

ServiceRunner *service_runner_clerk(const Services *services)
{
    return g_ptr_array_index(services->runners, 0);
}

/* A thread has its number here before it runs: its start holds the lock. */
ServiceRunner *service_runner_own(const Services *services)
{
    for (guint i = 0; i < services->runners->len; i++) {
        ServiceRunner *const runner = g_ptr_array_index(services->runners, i);

        if (runner->has_thread && pthread_equal(runner->thread, pthread_self()))
            return runner;
    }
    return NULL;
}

/* There is no thread that could answer the job, and this thread may not wait: says why at once. If
 * there is no memory for that either, the asker's deadline ends its wait. The lock is held. */
static void refuse_now(Services *services, ServiceJob *job, int failure)
{
    g_autofree char *own =
        g_strdup_printf("no thread there that could answer it: %s", g_strerror(failure));
    const bool has_code = job->code != CONTROL_OK;
    const uint32_t code = has_code ? job->code : CONTROL_CODE(RUBATO_ERROR_MEMORY);
    const char *const text = has_code ? job->text : own;
    const ServiceMessage message = { .kind = SERVICE_MESSAGE_ANSWER,
                                     .code = code,
                                     .serial = job->serial,
                                     .n_whole = strlen(text),
                                     .bytes = text,
                                     .n_bytes = strlen(text) };

    if (job->node == services->office->self) {
        GBytes *const bytes = g_bytes_new(text, strlen(text));

        service_replies_answer_own(services, job, code, bytes);
        g_bytes_unref(bytes);
    } else {
        (void)service_send(services, job->node, &message);
    }
    service_job_end(services, job);
}

/* The threads of the clerk and of the engine's own services begin with their first job: most runs
 * have none. If there can be no thread now,
 * the next job tries again. */
void service_runner_give(Services *services, ServiceRunner *runner, ServiceJob *job)
{
    const int failure = runner->has_thread ? 0 : service_runner_start(services, runner);

    if (failure != 0) {
        refuse_now(services, job, failure);
        return;
    }
    g_queue_push_tail(&runner->jobs, job);
    pthread_cond_broadcast(&services->changed);
}

void service_job_release(Services *services, ServiceJob *job)
{
    services->kept[job->node] -= job->n_kept;
    job->n_kept = 0;
    g_free(g_steal_pointer(&job->body.bytes));
    job->body.room = 0;
}

/* Behind the answer. */
void service_job_end(Services *services, ServiceJob *job)
{
    service_job_release(services, job);
    g_hash_table_remove(services->jobs[job->node], &job->serial); /* frees it */
}

/* The last reference of this thread goes back with the lock held: whoever frees the bytes later has
 * held the lock after it. (bytes: transfer full) */
static void send_answer(Services *services, ServiceJob *job, uint32_t code, GBytes *bytes)
{
    gsize n;
    const void *const data = g_bytes_get_data(bytes, &n);

    pthread_mutex_lock(&services->lock);
    if (job->node != services->office->self) {
        service_job_release(services, job); /* whoever has the answer may send as much again */
        pthread_mutex_unlock(&services->lock);
        service_send_answer(services, job, code, data, n);
        pthread_mutex_lock(&services->lock);
    }
    if (job->node == services->office->self)
        service_replies_answer_own(services, job, code, bytes);
    g_bytes_unref(bytes);
    service_job_end(services, job);
    pthread_mutex_unlock(&services->lock);
}

static void send_failure(Services *services, ServiceJob *job, uint32_t code, const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text != NULL ? text : "", -1);
    const size_t n = strlen(valid);
    GBytes *const bytes = g_bytes_new(
        valid, n <= CONTROL_MAX_TEXT
                   ? n
                   : (size_t)(g_utf8_find_prev_char(valid, valid + CONTROL_MAX_TEXT + 1) - valid));

    send_answer(services, job, code, bytes);
}

/* Runs the application's function. */
static void run(Services *services, const ServiceRunner *runner, ServiceJob *job)
{
    g_auto(RubatoByteWriter) writer = rubato_byte_writer_new(RUBATO_SERVICE_MOST_BYTES);
    gsize n_local = 0;
    const void *const local = job->local != NULL ? g_bytes_get_data(job->local, &n_local) : NULL;
    const RubatoServiceRequest request = {
        .service = runner->name,
        .node = services->office->node_ids[job->node],
        .bytes = job->local != NULL ? local : job->body.bytes,
        .n_bytes = job->local != NULL ? n_local : job->body.n,
    };
    g_autoptr(GError) error = NULL;

    if (!runner->function(&request, &writer, runner->user_data, &error)) {
        send_failure(services, job, CONTROL_CODE(RUBATO_ERROR_SERVICE),
                     error != NULL ? error->message : "it failed, and did not say why");
    } else if (writer.failed) {
        send_failure(services, job, CONTROL_CODE(RUBATO_ERROR_SERVICE),
                     "its answer is larger than 1 GiB, or than the memory there is");
    } else {
        GBytes *const bytes = g_bytes_new_take(writer.bytes, writer.n);

        writer = (RubatoByteWriter){ 0 };
        send_answer(services, job, CONTROL_OK, bytes);
    }
}

/* What no service answers. */
static void answer_as_clerk(Services *services, ServiceJob *job)
{
    g_autoptr(GPtrArray) done = g_ptr_array_new();

    if (job->code != CONTROL_OK || strcmp(job->name, SERVICE_BARRIER) != 0) {
        g_ptr_array_add(done, job);
    } else {
        pthread_mutex_lock(&services->lock);
        service_barrier_take(services, job, done);
        pthread_mutex_unlock(&services->lock);
    }
    for (guint i = 0; i < done->len; i++) {
        ServiceJob *const each = g_ptr_array_index(done, i);

        if (each->code != CONTROL_OK)
            send_failure(services, each, each->code, each->text);
        else
            send_answer(services, each, CONTROL_OK, g_bytes_new_static(NULL, 0));
    }
}

/* A service that ends passes what waits for it to the clerk. The lock is held. */
static void pass_on(Services *services, ServiceRunner *runner)
{
    ServiceJob *job;

    while ((job = g_queue_pop_head(&runner->jobs)) != NULL) {
        job->code = CONTROL_CODE(RUBATO_ERROR_NOT_FOUND);
        job->text = g_strdup("this node serves it no longer");
        service_runner_give(services, service_runner_clerk(services), job);
    }
}

typedef struct {
    Services *services;
    ServiceRunner *runner;
} Start;

static void *work(void *user)
{
    Start *const start = user;
    Services *const services = start->services;
    ServiceRunner *const runner = start->runner;

    g_free(start);
    pthread_mutex_lock(&services->lock);
    for (;;) {
        while (runner->jobs.length == 0 && !runner->is_ending)
            pthread_cond_wait(&services->changed, &services->lock);
        if (runner->is_ending)
            break;
        runner->running = g_queue_pop_head(&runner->jobs);
        pthread_mutex_unlock(&services->lock);
        if (runner->function != NULL)
            run(services, runner, runner->running);
        else
            answer_as_clerk(services, runner->running);
        pthread_mutex_lock(&services->lock);
        runner->running = NULL;
        pthread_cond_broadcast(&services->changed);
    }
    if (runner->function != NULL)
        pass_on(services, runner);
    pthread_mutex_unlock(&services->lock);
    return NULL;
}

int service_runner_start(Services *services, ServiceRunner *runner)
{
    Start *const begin = g_new(Start, 1);
    g_autofree char *name = g_strdup_printf("service %.7s", runner->name);

    *begin = (Start){ services, runner };
    const int failure = log_sink_start_thread(&runner->thread, work, begin);
    if (failure != 0) {
        g_free(begin);
        return failure;
    }
    pthread_setname_np(runner->thread, name);
    runner->has_thread = true;
    return 0;
}

ServiceRunner *service_runner_new(const char *name, RubatoServiceFunc function, void *user_data)
{
    ServiceRunner *const runner = g_new0(ServiceRunner, 1);

    runner->name = g_strdup(name);
    runner->function = function;
    runner->user_data = user_data;
    g_queue_init(&runner->jobs);
    return runner;
}

void service_runner_free(ServiceRunner *runner)
{
    g_queue_clear(&runner->jobs);
    g_free(runner->name);
    g_free(runner);
}

/* Waits for the end of a runner's thread. Not with the lock. */
void service_runner_end(Services *services, ServiceRunner *runner)
{
    StallClock clock;

    stall_clock_start(&clock, services->office->stall_ms);
    pthread_mutex_lock(&services->lock);
    runner->is_ending = true;
    pthread_cond_broadcast(&services->changed);
    while (runner->running != NULL)
        if (stall_clock_wait(&clock, &services->changed, &services->lock))
            g_message("node %u waits for the end of service %s, which still runs (for %.1f s so "
                      "far)",
                      services->office->node_ids[services->office->self], runner->name,
                      stall_clock_s(&clock));
    pthread_mutex_unlock(&services->lock);
    if (runner->has_thread)
        pthread_join(runner->thread, NULL);
}
