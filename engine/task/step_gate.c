/* The gate: a lock, and the ranks of those inside. A step is entered once for many requests, so
 * this need not be as fast as they are.
 *
 * Threads: as step_gate.h says. */
#include "engine/task/step_gate.h"

#include <glib.h>
#include <stdatomic.h>

#include "io/net/monotonic.h"

struct StepGate {
    _Atomic uint32_t n_refs;
    char *task; /* immutable */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    bool is_closed;
    GArray *inside; /* of ranks */
};

StepGate *step_gate_new(const char *task)
{
    StepGate *const gate = g_new0(StepGate, 1);

    gate->n_refs = 1;
    gate->task = g_strdup(task);
    gate->inside = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    pthread_mutex_init(&gate->lock, NULL);
    monotonic_cond_init(&gate->changed);
    return gate;
}

StepGate *step_gate_ref(StepGate *gate)
{
    atomic_fetch_add_explicit(&gate->n_refs, 1, memory_order_relaxed);
    return gate;
}

void step_gate_unref(StepGate *gate)
{
    /* acquire and release: pair with one another, so the last thread sees what all others did */
    if (atomic_fetch_sub_explicit(&gate->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    g_array_unref(gate->inside);
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    g_free(gate->task);
    g_free(gate);
}

const char *step_gate_task(const StepGate *gate)
{
    return gate->task;
}

bool step_gate_enter(StepGate *gate, uint32_t rank, int timeout_ms)
{
    bool enters;

    pthread_mutex_lock(&gate->lock);
    if (gate->is_closed) {
        const int64_t end_ms = monotonic_ms() + timeout_ms;

        while (gate->is_closed && monotonic_wait(&gate->changed, &gate->lock, end_ms))
            continue;
    }
    enters = !gate->is_closed;
    if (enters)
        g_array_append_val(gate->inside, rank);
    pthread_mutex_unlock(&gate->lock);
    return enters;
}

void step_gate_leave(StepGate *gate, uint32_t rank)
{
    pthread_mutex_lock(&gate->lock);
    for (guint i = 0; i < gate->inside->len; i++)
        if (g_array_index(gate->inside, uint32_t, i) == rank) {
            g_array_remove_index_fast(gate->inside, i);
            break;
        }
    if (gate->is_closed)
        pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

void step_gate_close(StepGate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_closed = true;
    pthread_mutex_unlock(&gate->lock);
}

bool step_gate_wait(StepGate *gate, int64_t end_ms, uint32_t *rank)
{
    bool is_empty;

    pthread_mutex_lock(&gate->lock);
    while (gate->inside->len > 0 && monotonic_wait(&gate->changed, &gate->lock, end_ms))
        continue;
    is_empty = gate->inside->len == 0;
    if (!is_empty)
        *rank = g_array_index(gate->inside, uint32_t, 0);
    pthread_mutex_unlock(&gate->lock);
    return is_empty;
}

void step_gate_open(StepGate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_closed = false;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}
