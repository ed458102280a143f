/* Bare threads that do what iterate_fresh does, and nothing else: each gathers its keys from rows
 * that all share, adds to them, and counts its iterations. A lock that spins stands before each
 * part of the rows. A thread that is too far ahead of another one spins, too, and gives its
 * processor away now and then, because there may be more threads than processors.
 *
 * Under a model that applies the Adds of a clock together, each thread copies values, and adds them
 * in its turn once all have come to the end of the clock.
 *
 * Threads: those that limit_threads and raw_barrier start; both wait for them. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

enum { MAX_THREADS = 64, MAX_PARTS = 4, LOOKS = 32 };

typedef struct {
    _Alignas(64) _Atomic uint32_t is_taken;
} RawLock;

typedef struct {
    _Alignas(64) _Atomic uint64_t clock;
    pthread_t thread;
    struct RawThreads *all;
    RubatoKey *keys; /* n_sets × n_keys */
    size_t *n_of;    /* of each set: the keys of each part, which lie one after the other */
    float *values;
    const RubatoKey *kept; /* by clock: the keys of the present one */
    float *kept_values;
} RawThread;

typedef struct RawThreads {
    /* immutable */
    uint32_t n_threads, n_parts;
    size_t n_keys, n_sets, n;
    float *rows;
    bool is_crowded; /* more threads than processors */
    bool by_clock;   /* Adds are applied at the end of their clock */
    uint64_t lead;   /* clocks by which one may be ahead; UINT64_MAX: any number */

    RawLock locks[MAX_PARTS];
    _Alignas(64) _Atomic uint32_t n_arrived; /* threads in the barrier */
    _Alignas(64) _Atomic uint64_t turn; /* barriers passed; by clock: Adds of threads applied */
    RawThread threads[MAX_THREADS];
} RawThreads;

/* Tells the processor that this is a waiting loop. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Between two looks. Where threads share a processor, the one that is waited for may need it. */
static void look_away(const RawThreads *all, unsigned *n_looks)
{
    if (all->is_crowded || ++*n_looks % LOOKS == 0)
        sched_yield();
    else
        spin_pause();
}

static void take(const RawThreads *all, RawLock *lock)
{
    unsigned n_looks = 0;

    while (atomic_load_explicit(&lock->is_taken, memory_order_relaxed) != 0 ||
           atomic_exchange_explicit(&lock->is_taken, 1, memory_order_acquire) != 0)
        look_away(all, &n_looks);
}

static void give(RawLock *lock)
{
    atomic_store_explicit(&lock->is_taken, 0, memory_order_release);
}

static void gather(RawThreads *all, const RubatoKey *keys, const size_t *n_of, float *values)
{
    for (uint32_t part = 0; part < all->n_parts; keys += n_of[part], values += n_of[part], part++) {
        take(all, &all->locks[part]);
        for (size_t i = 0; i < n_of[part]; i++)
            values[i] = all->rows[keys[i]];
        give(&all->locks[part]);
    }
}

static void scatter_add(RawThreads *all, const RubatoKey *keys, const size_t *n_of,
                        const float *values)
{
    for (uint32_t part = 0; part < all->n_parts; keys += n_of[part], values += n_of[part], part++) {
        take(all, &all->locks[part]);
        for (size_t i = 0; i < n_of[part]; i++)
            all->rows[keys[i]] += values[i];
        give(&all->locks[part]);
    }
}

static void wait_until_slowest_has(RawThreads *all, uint64_t clock)
{
    for (uint32_t i = 0; i < all->n_threads; i++) {
        unsigned n_looks = 0;

        while (atomic_load_explicit(&all->threads[i].clock, memory_order_acquire) < clock)
            look_away(all, &n_looks);
    }
}

/* When all have come to the end of a clock, each adds its own, one after the other: so the rows
 * that it uses stay in its cache. */
static void end_clock(RawThreads *all, RawThread *self, uint64_t clock)
{
    const uint64_t rank = (uint64_t)(self - all->threads);
    const uint64_t begin = clock * all->n_threads;
    unsigned n_looks = 0;

    atomic_store_explicit(&self->clock, clock + 1, memory_order_release);
    wait_until_slowest_has(all, clock + 1);
    while (atomic_load_explicit(&all->turn, memory_order_acquire) < begin + rank)
        look_away(all, &n_looks);
    for (size_t k = 0; k < all->n_keys; k++)
        all->rows[self->kept[k]] += self->kept_values[k];
    atomic_store_explicit(&all->turn, begin + rank + 1, memory_order_release);
    while (atomic_load_explicit(&all->turn, memory_order_acquire) < begin + all->n_threads)
        look_away(all, &n_looks);
}

static void *iterate_bare(void *data)
{
    RawThread *self = data;
    RawThreads *all = self->all;

    for (uint64_t clock = 0; clock < all->n; clock++) {
        const RubatoKey *keys = self->keys + clock % all->n_sets * all->n_keys;
        const size_t *n_of = self->n_of + clock % all->n_sets * all->n_parts;

        if (!all->by_clock && clock > all->lead)
            wait_until_slowest_has(all, clock - all->lead);
        gather(all, keys, n_of, self->values);
        clobber(self->values);
        if (all->by_clock) {
            memcpy(self->kept_values, self->values, all->n_keys * sizeof *self->values);
            self->kept = keys;
            end_clock(all, self, clock);
        } else {
            scatter_add(all, keys, n_of, self->values);
            clobber(all->rows);
            atomic_store_explicit(&self->clock, clock + 1, memory_order_release);
        }
    }
    return NULL;
}

/* Chooses a thread's keys, and puts those of a part next to one another in each set. */
static void choose_keys(RawThread *self, uint64_t n_rows, uint32_t rank)
{
    const RawThreads *all = self->all;
    GRand *random = g_rand_new_with_seed(1 + rank);
    g_autofree RubatoKey *drawn = g_new(RubatoKey, all->n_keys);

    self->keys = g_new(RubatoKey, all->n_sets * all->n_keys);
    self->n_of = g_new0(size_t, all->n_sets * all->n_parts);
    self->values = g_new0(float, all->n_keys);
    self->kept_values = g_new0(float, all->n_keys);
    for (size_t set = 0; set < all->n_sets; set++) {
        RubatoKey *keys = self->keys + set * all->n_keys;

        for (size_t i = 0; i < all->n_keys; i++)
            drawn[i] = g_rand_int(random) % n_rows;
        for (uint32_t part = 0; part < all->n_parts; part++)
            for (size_t i = 0; i < all->n_keys; i++)
                if (drawn[i] * all->n_parts / n_rows == part) {
                    *keys++ = drawn[i];
                    self->n_of[set * all->n_parts + part]++;
                }
    }
    g_rand_free(random);
}

/* Returns the seconds from the first start to the last end. */
static double run_all(RawThreads *all, void *(*run)(void *data))
{
    const double began = bench_now();

    for (uint32_t i = 1; i < all->n_threads; i++)
        if (pthread_create(&all->threads[i].thread, NULL, run, &all->threads[i]) != 0)
            g_error("no thread for a limit");
    run(&all->threads[0]);
    for (uint32_t i = 1; i < all->n_threads; i++)
        pthread_join(all->threads[i].thread, NULL);
    return bench_now() - began;
}

static RawThreads *raw_threads_new(uint32_t n_threads, size_t n)
{
    RawThreads *all = g_aligned_alloc0(1, sizeof *all, 64);

    if (n_threads > MAX_THREADS)
        g_error("a limit of %u threads; %d at most", n_threads, MAX_THREADS);
    all->n_threads = n_threads;
    all->n = n;
    all->is_crowded = n_threads > g_get_num_processors();
    for (uint32_t i = 0; i < n_threads; i++)
        all->threads[i].all = all;
    return all;
}

static void raw_threads_free(RawThreads *all)
{
    for (uint32_t i = 0; i < all->n_threads; i++) {
        g_free(all->threads[i].keys);
        g_free(all->threads[i].n_of);
        g_free(all->threads[i].values);
        g_free(all->threads[i].kept_values);
    }
    g_aligned_free(all);
}

double limit_threads(Bench *bench, size_t n)
{
    const BenchCase *what = bench->what;
    const RubatoModelTraits *traits = rubato_model_traits(what->table.model);
    const uint32_t n_nodes = what->mixed ? MAX(1, what->nodes) : 1;
    RawThreads *all = raw_threads_new(MAX(1, what->workers) * n_nodes, n);
    double seconds;

    all->n_parts = MIN(MAX(1, what->servers) * n_nodes, MAX_PARTS);
    all->n_keys = what->n_keys;
    all->n_sets = MAX(1, what->n_sets);
    all->rows = raw_rows(bench);
    all->by_clock = traits->applies_by_clock;
    all->lead = traits->lead == RUBATO_LEAD_UNBOUNDED ? UINT64_MAX : what->table.staleness;
    for (uint32_t i = 0; i < all->n_threads; i++)
        choose_keys(&all->threads[i], bench->n_rows, i);
    seconds = run_all(all, iterate_bare);
    seconds /= all->n_threads; /* for the iterations of one: all of them count */
    raw_threads_free(all);
    return seconds;
}

static void *pass_barriers(void *data)
{
    RawThread *self = data;
    RawThreads *all = self->all;

    for (uint64_t round = 0; round < all->n; round++) {
        unsigned n_looks = 0;

        if (atomic_fetch_add_explicit(&all->n_arrived, 1, memory_order_acq_rel) + 1 ==
            all->n_threads) {
            atomic_store_explicit(&all->n_arrived, 0, memory_order_relaxed);
            atomic_store_explicit(&all->turn, round + 1, memory_order_release);
        }
        while (atomic_load_explicit(&all->turn, memory_order_acquire) <= round)
            look_away(all, &n_looks);
    }
    return NULL;
}

double raw_barrier(uint32_t n_threads, size_t n)
{
    RawThreads *all = raw_threads_new(n_threads, n);
    const double seconds = run_all(all, pass_barriers);

    raw_threads_free(all);
    return seconds / (double)n;
}
