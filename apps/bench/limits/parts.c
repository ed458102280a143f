/* Bare threads that do what a worker and two servers do with Adds, and nothing else: the limit of
 * tables with replicas. Each server has the rows of half of the keys. The worker copies keys and
 * deltas to the server whose they are. A server adds them to its rows; for replicated rows it also
 * copies them on to the other server, which adds them to its copy of the same rows. The worker's
 * copy stays until then, as it would have to be sent again if the first server were lost: so
 * nothing else is copied for that.
 *
 * Nobody looks for long before it sleeps: there may be more threads than processors, and each look
 * would be taken from another one's work.
 *
 * Threads: those that limit_parts_add and limit_parts_add_twice start; both wait for them. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

enum {
    N_SERVERS = 2,
    N_REQUESTS = 16, /* under way to a server; a power of two, so that counters may wrap */
    LOOKS = 50,
};

/* A count of what has happened to somebody who may sleep until there is more. */
typedef struct {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t n_asleep;
} News;

typedef struct {
    size_t n;
    RubatoKey *keys;
    float *values;
} Request;

/* Each counter has one thread that counts it. They are stored before the news of somebody else
 * counts up, and loaded by him after it: sequentially consistent, all of them. */
typedef struct {
    struct Parts *all;
    uint32_t number;
    pthread_t thread;
    News news;               /* requests, copies, room for copies */
    _Atomic uint32_t asked;  /* by the worker */
    _Atomic uint32_t added;  /* by this server, to its own rows */
    _Atomic uint32_t passed; /* to this server, by the other one */
    _Atomic uint32_t copied; /* of these, added to its copy of the rows */
    float *rows, *copy;      /* of all keys; half of each is used */
    Request requests[N_REQUESTS], copies[N_REQUESTS];
} PartServer;

typedef struct Parts {
    bool twice;
    uint32_t n; /* requests that each server will get */
    News answers;
    PartServer servers[N_SERVERS];
} Parts;

static void tell(News *news)
{
    atomic_fetch_add(&news->value, 1);
    if (atomic_load(&news->n_asleep) > 0)
        syscall(SYS_futex, &news->value, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* The sleeper counts itself and then looks once more: so it is seen, or sees the news. */
static void await(News *news, uint32_t seen)
{
    for (unsigned looks = 0; looks < LOOKS; looks++)
        if (atomic_load(&news->value) != seen)
            return;
    atomic_fetch_add(&news->n_asleep, 1);
    while (atomic_load(&news->value) == seen)
        syscall(SYS_futex, &news->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&news->n_asleep, 1);
}

static void copy_request(Request *to, const RubatoKey *keys, const float *values, size_t n)
{
    to->n = n;
    memcpy(to->keys, keys, n * sizeof *keys);
    memcpy(to->values, values, n * sizeof *values);
}

static void add(float *rows, const Request *request)
{
    for (size_t i = 0; i < request->n; i++)
        rows[request->keys[i]] += request->values[i];
    clobber(rows);
}

/* Adds what the other server has passed on. */
static bool take_copy(PartServer *self, PartServer *other)
{
    const uint32_t copied = atomic_load(&self->copied);

    if (atomic_load(&self->passed) == copied)
        return false;
    add(self->copy, &self->copies[copied % N_REQUESTS]);
    atomic_store(&self->copied, copied + 1);
    tell(&self->all->answers);
    tell(&other->news);
    return true;
}

static bool take_request(PartServer *self, PartServer *other)
{
    const uint32_t added = atomic_load(&self->added), passed = atomic_load(&other->passed);
    const Request *const request = &self->requests[added % N_REQUESTS];

    if (atomic_load(&self->asked) == added ||
        (self->all->twice && passed - atomic_load(&other->copied) == N_REQUESTS))
        return false;
    if (self->all->twice) {
        copy_request(&other->copies[passed % N_REQUESTS], request->keys, request->values,
                     request->n);
        atomic_store(&other->passed, passed + 1);
        tell(&other->news);
    }
    add(self->rows, request);
    atomic_store(&self->added, added + 1);
    tell(&self->all->answers);
    return true;
}

static bool has_all(const PartServer *self)
{
    const uint32_t n = self->all->n;

    return atomic_load(&self->added) == n && (!self->all->twice || atomic_load(&self->copied) == n);
}

static void *serve(void *data)
{
    PartServer *const self = data, *const other = &self->all->servers[1 - self->number];

    while (!has_all(self)) {
        const uint32_t seen = atomic_load(&self->news.value);
        const bool had_copy = take_copy(self, other), had_request = take_request(self, other);

        if (!had_copy && !had_request)
            await(&self->news, seen);
    }
    return NULL;
}

/* How many requests to a server are done with. */
static uint32_t n_done(const Parts *all, uint32_t server)
{
    const uint32_t added = atomic_load(&all->servers[server].added);
    const uint32_t copied = atomic_load(&all->servers[1 - server].copied);

    return all->twice ? MIN(added, copied) : added;
}

static void ask(Parts *all, uint32_t number, const RubatoKey *keys, const float *values, size_t n)
{
    PartServer *const server = &all->servers[number];
    const uint32_t asked = atomic_load(&server->asked);

    for (;;) {
        const uint32_t seen = atomic_load(&all->answers.value);

        if (asked - n_done(all, number) < N_REQUESTS)
            break;
        await(&all->answers, seen);
    }
    copy_request(&server->requests[asked % N_REQUESTS], keys, values, n);
    atomic_store(&server->asked, asked + 1);
    tell(&server->news);
}

/* Keys are in order: the first ones are those of the first server. */
static void ask_both(Parts *all, Bench *bench)
{
    const RubatoKey *const keys = bench_next_keys(bench);
    const size_t n = bench->what->n_keys;
    size_t low = 0, high = n;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (keys[middle] < bench->n_rows / 2)
            low = middle + 1;
        else
            high = middle;
    }
    ask(all, 0, keys, bench->values, low);
    ask(all, 1, keys + low, bench->values + low, n - low);
}

/* Memory that is there, so that nobody waits for it while time is taken. */
static void *new_memory(size_t n_bytes)
{
    void *const memory = g_malloc(n_bytes);

    memset(memory, 1, n_bytes);
    clobber(memory);
    return memory;
}

static void make_requests(Request *requests, size_t n_keys)
{
    for (unsigned i = 0; i < N_REQUESTS; i++)
        requests[i] = (Request){ .keys = new_memory(n_keys * sizeof *requests->keys),
                                 .values = new_memory(n_keys * sizeof *requests->values) };
}

static void clear_requests(Request *requests)
{
    for (unsigned i = 0; i < N_REQUESTS; i++) {
        g_free(requests[i].keys);
        g_free(requests[i].values);
    }
}

/* The rows, and behind them the copies of all. */
static float *rows_twice(Bench *bench)
{
    const size_t n_values = 2 * (size_t)bench->n_rows;

    if (bench->raw == NULL) {
        float *const rows = raw_allocate(bench, n_values * sizeof *rows);

        for (size_t i = 0; i < n_values; i++)
            rows[i] = 1;
    }
    return bench->raw;
}

static Parts *parts_new(Bench *bench, bool twice, uint32_t n)
{
    Parts *const all = g_aligned_alloc0(1, sizeof *all, _Alignof(Parts));

    all->twice = twice;
    all->n = n;
    for (uint32_t i = 0; i < N_SERVERS; i++) {
        PartServer *const server = &all->servers[i];

        server->all = all;
        server->number = i;
        server->rows = rows_twice(bench);
        server->copy = server->rows + bench->n_rows;
        make_requests(server->requests, bench->what->n_keys);
        make_requests(server->copies, bench->what->n_keys);
    }
    return all;
}

static void parts_free(Parts *all)
{
    for (uint32_t i = 0; i < N_SERVERS; i++) {
        clear_requests(all->servers[i].requests);
        clear_requests(all->servers[i].copies);
    }
    g_aligned_free(all);
}

static double add_requests(Bench *bench, bool twice, size_t n)
{
    Parts *const all = parts_new(bench, twice, (uint32_t)n);
    double began, seconds;

    for (uint32_t i = 0; i < N_SERVERS; i++)
        if (pthread_create(&all->servers[i].thread, NULL, serve, &all->servers[i]) != 0)
            g_error("no thread for a limit");
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        ask_both(all, bench);
    for (uint32_t i = 0; i < N_SERVERS; i++)
        pthread_join(all->servers[i].thread, NULL);
    seconds = bench_now() - began;
    parts_free(all);
    return seconds;
}

double limit_parts_add(Bench *bench, size_t n)
{
    return add_requests(bench, /* twice= */ false, n);
}

double limit_parts_add_twice(Bench *bench, size_t n)
{
    return add_requests(bench, /* twice= */ true, n);
}
