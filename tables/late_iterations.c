/* Iterations that servers have not been told of: see late_iterations.h.
 *
 * No iteration is missed. A worker notes its iteration, and then looks whether somebody asks, both
 * with its lock. Who asks says so first, and then takes the lock of each worker. If it is the
 * second one to have a lock, it finds the iteration. If it is the first one, the worker sees that
 * it asks, because the lock orders the two.
 *
 * What is told of a worker keeps its order, because it is told with its lock. */
#include "tables/late_iterations.h"

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "io/memory_room.h"

/* In cache lines of its own: usually only its worker uses it. */
typedef struct {
    _Alignas(64) pthread_mutex_t lock;
    /* guarded by lock */
    bool is_told; /* the rest has been, or there is none yet */
    RubatoKey *keys;
    size_t n, n_allocated;
    uint64_t clock;
} LateIteration;

struct LateIterations {
    /* immutable */
    uint32_t first_rank;
    uint32_t n_workers;
    /* Seldom changes, so each processor's cache has it. */
    _Alignas(64) _Atomic uint32_t n_asking;
    _Atomic bool has_ended;
    LateIteration workers[];
};

LateIterations *late_iterations_new(uint32_t first_rank, uint32_t n_workers)
{
    LateIterations *const late = g_aligned_alloc0(
        1, sizeof *late + (gsize)n_workers * sizeof(LateIteration), _Alignof(LateIterations));

    late->first_rank = first_rank;
    late->n_workers = n_workers;
    atomic_init(&late->n_asking, 0);
    atomic_init(&late->has_ended, false);
    for (uint32_t i = 0; i < n_workers; i++) {
        late->workers[i].is_told = true;
        pthread_mutex_init(&late->workers[i].lock, NULL);
    }
    return late;
}

void late_iterations_free(LateIterations *late)
{
    if (late == NULL)
        return;
    for (uint32_t i = 0; i < late->n_workers; i++) {
        pthread_mutex_destroy(&late->workers[i].lock);
        g_free(late->workers[i].keys);
    }
    g_aligned_free(late);
}

/* The lock is held. What was noted before goes, if there is room. */
static bool make_room(LateIteration *worker, size_t n)
{
    if (n <= worker->n_allocated)
        return true;
    RubatoKey *const keys = memory_try_malloc(n * sizeof *keys);

    if (keys == NULL)
        return false;
    g_free(worker->keys);
    worker->keys = keys;
    worker->n_allocated = n;
    return true;
}

LateIterationNote late_iterations_begin(LateIterations *late, uint32_t rank, uint64_t clock,
                                        const RubatoKey *keys, size_t n)
{
    LateIteration *const worker = &late->workers[rank - late->first_rank];
    LateIterationNote note = LATE_ITERATION_REFUSED;

    pthread_mutex_lock(&worker->lock);
    if (make_room(worker, n)) {
        worker->clock = clock;
        worker->n = n;
        if (n > 0)
            memcpy(worker->keys, keys, n * sizeof *keys);
        worker->is_told = false;
        /* relaxed, both: the lock orders them, see the note */
        note = atomic_load_explicit(&late->n_asking, memory_order_relaxed) > 0 ||
                       late_iterations_have_ended(late)
                   ? LATE_ITERATION_ASKED
                   : LATE_ITERATION_NOTED;
    }
    pthread_mutex_unlock(&worker->lock);
    return note;
}

void late_iterations_tell(LateIterations *late, uint32_t rank, LateIterationTell tell, void *user)
{
    LateIteration *const worker = &late->workers[rank - late->first_rank];

    pthread_mutex_lock(&worker->lock);
    if (!worker->is_told) {
        tell(user, rank, worker->clock, &(RubatoKeys){ .keys = worker->keys, .n = worker->n });
        worker->is_told = true;
    }
    pthread_mutex_unlock(&worker->lock);
}

void late_iterations_tell_all(LateIterations *late, LateIterationTell tell, void *user)
{
    for (uint32_t i = 0; i < late->n_workers; i++)
        late_iterations_tell(late, late->first_rank + i, tell, user);
}

/* relaxed, all: the locks order them, see the note */
void late_iterations_ask(LateIterations *late)
{
    atomic_fetch_add_explicit(&late->n_asking, 1, memory_order_relaxed);
}

void late_iterations_end_ask(LateIterations *late)
{
    atomic_fetch_sub_explicit(&late->n_asking, 1, memory_order_relaxed);
}

bool late_iterations_end(LateIterations *late)
{
    return !atomic_exchange_explicit(&late->has_ended, true, memory_order_relaxed);
}

bool late_iterations_have_ended(const LateIterations *late)
{
    return atomic_load_explicit(&late->has_ended, memory_order_relaxed);
}
