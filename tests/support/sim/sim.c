/* Threads, time and chance of the simulation.
 *
 * One list holds the threads that can run, a heap the events that are due at a time. A turn takes a
 * thread of the list, chosen by the seed. Invariants: a thread is in the list, or in its node's
 * while that is frozen, or waits, or has ended; sim.now_ns never goes back. */
#include "tests/support/sim/sim.h"

#include <errno.h>
#include <rubato/mix.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "tests/support/sim/sim_private.h"

/* A turn takes so long at most. */
#define MOST_TURN_NS 2000

/* The time at the start. It is not 0, because 0 often has another meaning. */
#define FIRST_NS (INT64_C(1000) * 1000 * SIM_MS)

typedef struct {
    int64_t at_ns;
    uint64_t order; /* of two events at the same time, the one with the lower number comes first */
    void (*call)(void *data, uint64_t number);
    void *data;
    uint64_t number;
} Due;

static struct {
    SimOptions options;
    bool is_running;
    bool keeps_running; /* the present thread gives way to nobody */
    int64_t now_ns;
    uint64_t random, digest, n_turns, n_dues;
    GPtrArray *threads; /* all, by number */
    GPtrArray *ready;
    GPtrArray *frozen_ready[SIM_MOST_NODES];
    bool frozen[SIM_MOST_NODES];
    uint32_t n_living;
    GArray *dues; /* a heap of Due */
    void (*say)(void *user);
    void *say_user;
} sim;

SimThread *sim_current;

/* ---- chance ---- */

uint64_t sim_random(void)
{
    return rubato_mix64(sim.random += UINT64_C(0x9e3779b97f4a7c15)); /* SplitMix64 */
}

uint64_t sim_below(uint64_t limit)
{
    return limit == 0 ? 0 : sim_random() % limit;
}

bool sim_chance(uint32_t n, uint32_t of_m)
{
    return n > 0 && sim_below(of_m) < n;
}

void sim_mark(uint64_t what)
{
    sim.digest = (sim.digest ^ what) * UINT64_C(0x9e3779b97f4a7c15);
    sim.digest ^= sim.digest >> 29;
}

uint64_t sim_digest(void)
{
    return sim.digest;
}

uint64_t sim_n_turns(void)
{
    return sim.n_turns;
}

/* ---- time ---- */

int64_t sim_now_ns(void)
{
    return sim.now_ns;
}

int64_t sim_now_ms(void)
{
    return sim.now_ns / SIM_MS;
}

static bool is_before(const Due *a, const Due *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static Due *due_at(guint i)
{
    return &g_array_index(sim.dues, Due, i);
}

void sim_after(int64_t ns, void (*call)(void *data, uint64_t number), void *data, uint64_t number)
{
    const Due due = { sim.now_ns + ns, sim.n_dues++, call, data, number };
    guint i = sim.dues->len;

    g_array_append_val(sim.dues, due);
    for (; i > 0 && is_before(&due, due_at((i - 1) / 2)); i = (i - 1) / 2)
        *due_at(i) = *due_at((i - 1) / 2);
    *due_at(i) = due;
}

static Due take_due(void)
{
    const Due first = *due_at(0);
    const Due last = *due_at(sim.dues->len - 1);
    guint i = 0;

    g_array_set_size(sim.dues, sim.dues->len - 1);
    const guint n = sim.dues->len;
    while (2 * i + 1 < n) {
        guint child = 2 * i + 1;
        if (child + 1 < n && is_before(due_at(child + 1), due_at(child)))
            child++;
        if (!is_before(due_at(child), &last))
            break;
        *due_at(i) = *due_at(child);
        i = child;
    }
    if (n > 0)
        *due_at(i) = last;
    return first;
}

/* ---- threads ---- */

bool sim_is_inside(void)
{
    return sim_current != NULL;
}

uint32_t sim_node(void)
{
    g_assert(sim_current != NULL);
    return sim_current->node;
}

static void make_ready(SimThread *thread)
{
    g_ptr_array_add(sim.frozen[thread->node] ? sim.frozen_ready[thread->node] : sim.ready, thread);
}

void sim_freeze(uint32_t node)
{
    if (sim.frozen[node])
        return;
    SIM_TRACE("node %u is stopped", node);
    sim.frozen[node] = true;
    for (guint i = 0; i < sim.ready->len;) {
        SimThread *const thread = g_ptr_array_index(sim.ready, i);
        if (thread->node != node) {
            i++;
            continue;
        }
        g_ptr_array_remove_index(sim.ready, i);
        g_ptr_array_add(sim.frozen_ready[node], thread);
    }
}

void sim_thaw(uint32_t node)
{
    if (!sim.frozen[node])
        return;
    SIM_TRACE("node %u goes on", node);
    sim.frozen[node] = false;
    for (guint i = 0; i < sim.frozen_ready[node]->len; i++)
        g_ptr_array_add(sim.ready, g_ptr_array_index(sim.frozen_ready[node], i));
    g_ptr_array_set_size(sim.frozen_ready[node], 0);
}

bool sim_is_frozen(uint32_t node)
{
    return sim.frozen[node];
}

static void leave_queue(SimThread *thread)
{
    SimQueue *const queue = thread->queue;

    if (queue == NULL)
        return;
    *(thread->previous != NULL ? &thread->previous->next : &queue->first) = thread->next;
    *(thread->next != NULL ? &thread->next->previous : &queue->last) = thread->previous;
    thread->queue = NULL;
    thread->previous = thread->next = NULL;
}

static void enter_queue(SimThread *thread, SimQueue *queue)
{
    thread->queue = queue;
    thread->previous = queue->last;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = thread;
    queue->last = thread;
}

SimThread *sim_pick(SimQueue *queue)
{
    uint64_t n = 0;
    SimThread *thread = queue->first;

    for (const SimThread *each = thread; each != NULL; each = each->next)
        n++;
    for (uint64_t i = n > 1 ? sim_below(n) : 0; i > 0; i--)
        thread = thread->next;
    return thread;
}

void sim_wake(SimThread *thread)
{
    g_assert(thread->what != NULL);
    leave_queue(thread);
    thread->what = NULL;
    thread->n_waits++;
    make_ready(thread);
}

static void time_out(void *data, uint64_t n_waits)
{
    SimThread *const thread = data;

    if (thread->what == NULL || thread->n_waits != n_waits)
        return;
    thread->timed_out = true;
    sim_wake(thread);
}

/* Back to sim_run. */
static void pause_current(void)
{
    SimThread *const self = sim_current;

    if (sim.keeps_running)
        sim_fail("a thread waits, and may give way to nobody");
    self->saved_errno = errno;
    self->caller_thread = caller_thread;
    self->caller_place = caller_place;
    fiber_pause();
    errno = self->saved_errno;
    caller_thread = self->caller_thread;
    caller_place = self->caller_place;
}

bool sim_wait(SimQueue *queue, int64_t until_ns, const char *what, const void *whom)
{
    SimThread *const self = sim_current;

    self->what = what;
    self->whom = whom;
    self->since_ns = sim.now_ns;
    self->timed_out = false;
    if (queue != NULL)
        enter_queue(self, queue);
    if (until_ns != SIM_NEVER)
        sim_after(MAX(0, until_ns - sim.now_ns), time_out, self, self->n_waits);
    pause_current();
    return !self->timed_out;
}

void sim_sleep_ns(int64_t ns)
{
    (void)sim_wait(NULL, sim.now_ns + ns, "sleeps", NULL);
}

void sim_give_way(void)
{
    make_ready(sim_current);
    pause_current();
}

void sim_keep_running(bool keeps)
{
    sim.keeps_running = keeps;
}

void sim_may_give_way(void)
{
    if (sim.keeps_running)
        return;
    const uint32_t drawn = (uint32_t)sim_below(1024);

    if (drawn < sim.options.delay_1024)
        (void)sim_wait(NULL, sim.now_ns + (int64_t)sim_below((uint64_t)sim.options.most_delay_ns),
                       "is kept from its processor", NULL);
    else if (drawn < sim.options.delay_1024 + sim.options.yield_1024)
        sim_give_way();
}

bool sim_is_spurious(void)
{
    return sim.options.yield_1024 > 0 && sim_chance(1, 64);
}

static void run_thread(void *data)
{
    SimThread *const self = data;

    caller_thread = 0;
    caller_place = CALLER_OUTSIDE;
    self->result = self->run(self->data);
    self->has_ended = true;
    sim.n_living--;
    SIM_TRACE("ends");
    while (self->joiners.first != NULL)
        sim_wake(self->joiners.first);
    sim_current = NULL;
}

SimThread *sim_thread_new(uint32_t node, const char *name, void *(*run)(void *data), void *data)
{
    SimThread *const thread = g_new0(SimThread, 1);

    g_assert(node < SIM_MOST_NODES);
    thread->number = sim.threads->len;
    thread->node = node;
    g_strlcpy(thread->name, name, sizeof thread->name);
    thread->run = run;
    thread->data = data;
    thread->fiber = fiber_new(run_thread, thread);
    g_ptr_array_add(sim.threads, thread);
    sim.n_living++;
    make_ready(thread);
    return thread;
}

void sim_spawn(uint32_t node, const char *name, void *(*run)(void *data), void *data)
{
    (void)sim_thread_new(node, name, run, data);
}

static void free_thread(gpointer data)
{
    SimThread *const thread = data;

    fiber_free(thread->fiber);
    g_free(thread);
}

/* ---- the run ---- */

void sim_begin(const SimOptions *options)
{
    void (*const say)(void *user) = sim.say;
    void *const say_user = sim.say_user;

    g_assert(!sim.is_running);
    memset(&sim, 0, sizeof sim);
    sim.options = *options;
    sim.say = say;
    sim.say_user = say_user;
    sim.is_running = true;
    sim.now_ns = FIRST_NS;
    sim.random = options->seed * UINT64_C(0xd1342543de82ef95) + 1;
    sim.threads = g_ptr_array_new_with_free_func(free_thread);
    sim.ready = g_ptr_array_new();
    sim.dues = g_array_new(FALSE, FALSE, sizeof(Due));
    for (uint32_t i = 0; i < SIM_MOST_NODES; i++)
        sim.frozen_ready[i] = g_ptr_array_new();
}

static void give_turn(void)
{
    const guint i = (guint)sim_below(sim.ready->len);
    SimThread *const thread = g_ptr_array_remove_index_fast(sim.ready, i);

    sim.n_turns++;
    sim.now_ns += (int64_t)sim_below(MOST_TURN_NS);
    sim_mark(thread->number ^ ((uint64_t)sim.now_ns << 8));
    sim_current = thread;
    fiber_resume(thread->fiber);
    sim_current = NULL;
}

SimEnd sim_run(int64_t until_ns)
{
    while (sim.n_living > 0) {
        while (sim.dues->len > 0 && due_at(0)->at_ns <= sim.now_ns) {
            const Due due = take_due();
            due.call(due.data, due.number);
        }
        if (sim.now_ns > until_ns)
            return SIM_END_LATE;
        if (sim.ready->len > 0)
            give_turn();
        else if (sim.dues->len > 0)
            sim.now_ns = due_at(0)->at_ns; /* which is to come */
        else
            return SIM_END_STUCK;
    }
    return SIM_END_DONE;
}

void sim_end(void)
{
    g_assert(sim_current == NULL);
    g_ptr_array_free(sim.threads, TRUE);
    g_ptr_array_free(sim.ready, TRUE);
    for (uint32_t i = 0; i < SIM_MOST_NODES; i++)
        g_ptr_array_free(sim.frozen_ready[i], TRUE);
    g_array_free(sim.dues, TRUE);
    sim.is_running = false;
}

/* ---- telling ---- */

bool sim_traces(void)
{
    return sim.is_running && sim.options.traces;
}

void sim_trace(const char *format, ...)
{
    va_list arguments;
    const int64_t ns = sim.now_ns - FIRST_NS;

    printf("%9" G_GINT64_FORMAT ".%06" G_GINT64_FORMAT " ", ns / SIM_MS, ns % SIM_MS);
    if (sim_current != NULL)
        printf("node %u %-12s ", sim_current->node, sim_current->name);
    else
        printf("%-20s", "");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

char *sim_describe_threads(void)
{
    GString *const text = g_string_new(NULL);

    for (guint i = 0; i < sim.threads->len; i++) {
        const SimThread *const thread = g_ptr_array_index(sim.threads, i);
        if (thread->has_ended)
            continue;
        g_string_append_printf(text, "  node %u%s, %s: ", thread->node,
                               sim.frozen[thread->node] ? " (stopped)" : "", thread->name);
        if (thread->what == NULL)
            g_string_append(text, thread == sim_current ? "runs\n" : "can go on\n");
        else
            g_string_append_printf(text, "%s %p for %.6f s\n", thread->what, thread->whom,
                                   (double)(sim.now_ns - thread->since_ns) / 1e9);
    }
    return g_string_free(text, FALSE);
}

void sim_on_failure(void (*say)(void *user), void *user)
{
    sim.say = say;
    sim.say_user = user;
}

void sim_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_autofree char *threads = sim.is_running ? sim_describe_threads() : g_strdup("");
    sim_current = NULL; /* from here on the operating system is the real one */
    fflush(stdout);
    if (sim.say != NULL)
        sim.say(sim.say_user);
    fprintf(stderr, "%.3f s: %s\n%s", (double)(sim.now_ns - FIRST_NS) / 1e9, what, threads);
    ck_abort_msg("%s", what);
    g_assert_not_reached();
}
