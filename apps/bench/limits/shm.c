/* Two processes with shared memory: the limit of the cases on one host. The other process is this
 * program again, with the memory as file descriptor 3.
 *
 * Who waits looks for a while and then sleeps; so round trips of two processes that are awake need
 * no system call. Streams are copied through a ring of blocks: one process copies in, the other
 * copies out. Rows are in the other process alone: keys are copied into shared memory, and it
 * gathers from its rows, or adds to them, between that memory and its own. */
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/run/process.h"

enum {
    SHARED_FD = 3,
    N_BLOCKS = 16, /* a power of two, so that counters may wrap */
    BLOCK_BYTES = 256 << 10,
    SPINS = 2000,
    MESSAGE_BYTES = 64, /* of a round trip */
    N_REQUESTS = 4,     /* under way: Adds need no answer */
    MAX_KEYS = 100000,  /* of a request */
};

enum {
    ORDER_ECHO = 1,
    ORDER_TAKE, /* copy blocks out */
    ORDER_GIVE, /* copy blocks in */
    ORDER_GET,  /* gather for requests */
    ORDER_ADD,
    ORDER_END,
};

/* A word that one process counts up and the other waits for. */
typedef struct {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t n_asleep;
} Word;

typedef struct {
    RubatoKey keys[MAX_KEYS];
    float values[MAX_KEYS];
} Request;

typedef struct {
    Word asked, answered; /* round trips and requests so far */
    _Alignas(64) unsigned char question[MESSAGE_BYTES];
    _Alignas(64) unsigned char answer[MESSAGE_BYTES];
    Word written, read; /* blocks so far, of streams */
    Word n_orders;
    uint32_t order, n; /* written before n_orders counts up */
    size_t n_keys;     /* of a request */

    _Alignas(64) unsigned char blocks[N_BLOCKS][BLOCK_BYTES];
    Request requests[N_REQUESTS];
} Shared;

typedef struct {
    Shared *shared;
    int fd;
    unsigned char *own; /* as much as a ring: what is copied in and out */
    GPid process;
} RawShm;

/* All loads acquire and all stores release: a process that sees a counter moved also sees what was
 * written before. */
static uint32_t look(const Word *word)
{
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

/* The fence stands between the store of the value and the load of n_asleep; the sleeper counts
 * itself and then looks at the value once more, both sequentially consistent. So either it sees the
 * new value or it is seen. */
static void set(Word *word, uint32_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&word->n_asleep, memory_order_relaxed) > 0)
        syscall(SYS_futex, &word->value, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_while(Word *word, uint32_t value)
{
    for (unsigned spins = 0; spins < SPINS && look(word) == value; spins++)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        clobber(NULL);
#endif
    if (look(word) != value)
        return;
    atomic_fetch_add_explicit(&word->n_asleep, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&word->value, memory_order_seq_cst) == value)
        syscall(SYS_futex, &word->value, FUTEX_WAIT, value, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&word->n_asleep, 1, memory_order_relaxed);
}

static void copy_in(Shared *shared, const unsigned char *from, uint32_t n)
{
    uint32_t written = look(&shared->written);

    for (; n-- > 0; set(&shared->written, ++written)) {
        const uint32_t at = written % N_BLOCKS;

        wait_while(&shared->read, written - N_BLOCKS);
        memcpy(shared->blocks[at], from + (size_t)at * BLOCK_BYTES, BLOCK_BYTES);
    }
}

static void copy_out(Shared *shared, unsigned char *to, uint32_t n)
{
    uint32_t read = look(&shared->read);

    for (; n-- > 0; set(&shared->read, ++read)) {
        const uint32_t at = read % N_BLOCKS;

        wait_while(&shared->written, read);
        memcpy(to + (size_t)at * BLOCK_BYTES, shared->blocks[at], BLOCK_BYTES);
    }
}

static void echo(Shared *shared, uint32_t n)
{
    unsigned char message[MESSAGE_BYTES];
    uint32_t answered = look(&shared->answered);

    for (; n-- > 0; set(&shared->answered, ++answered)) {
        wait_while(&shared->asked, answered);
        memcpy(message, shared->question, MESSAGE_BYTES);
        clobber(message);
        memcpy(shared->answer, message, MESSAGE_BYTES);
    }
}

static void serve_requests(Shared *shared, Bench *bench, bool adds, uint32_t n)
{
    uint32_t answered = look(&shared->answered);

    for (; n-- > 0; set(&shared->answered, ++answered)) {
        Request *request = &shared->requests[answered % N_REQUESTS];

        wait_while(&shared->asked, answered);
        if (adds)
            raw_add(bench, request->keys, shared->n_keys, request->values);
        else
            raw_get(bench, request->keys, shared->n_keys, request->values);
    }
}

int raw_shm_serve(const BenchCase *what, uint64_t n_rows)
{
    Bench bench = { .what = what, .n_rows = n_rows };
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
    g_autofree unsigned char *own = g_malloc0((size_t)N_BLOCKS * BLOCK_BYTES);
    uint32_t n_orders = 0;

    if (shared == MAP_FAILED)
        return 1;
    for (;;) {
        wait_while(&shared->n_orders, n_orders++);
        if (shared->order == ORDER_ECHO)
            echo(shared, shared->n);
        else if (shared->order == ORDER_TAKE)
            copy_out(shared, own, shared->n);
        else if (shared->order == ORDER_GIVE)
            copy_in(shared, own, shared->n);
        else if (shared->order == ORDER_GET || shared->order == ORDER_ADD)
            serve_requests(shared, &bench, shared->order == ORDER_ADD, shared->n);
        else
            return 0;
    }
}

static RawShm *raw_shm(Bench *bench)
{
    RawShm *shm = bench->raw_shm;
    g_autofree char *n_rows = g_strdup_printf("%" G_GUINT64_FORMAT, bench->n_rows);
    g_autoptr(GError) error = NULL;

    if (shm != NULL)
        return shm;
    shm = g_new0(RawShm, 1);
    shm->fd = memfd_create("rubato-bench", MFD_CLOEXEC);
    shm->shared = MAP_FAILED;
    if (shm->fd >= 0 && ftruncate(shm->fd, sizeof *shm->shared) == 0)
        shm->shared =
            mmap(NULL, sizeof *shm->shared, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, 0);
    if (shm->shared == MAP_FAILED)
        g_error("no memory to share: %s", g_strerror(errno));
    if (!process_start(&(ProcessStart){ .arguments = { "--serve-shm", bench->what->name, n_rows },
                                        .shared_fd = shm->fd,
                                        .as_fd = SHARED_FD },
                       &shm->process, &error))
        g_error("cannot start the other end: %s", error->message);
    shm->own = g_malloc0((size_t)N_BLOCKS * BLOCK_BYTES);
    bench->raw_shm = shm;
    return shm;
}

static void give_order(Shared *shared, uint32_t order, uint32_t n)
{
    shared->order = order;
    shared->n = n;
    set(&shared->n_orders, look(&shared->n_orders) + 1);
}

static void round_trip(Shared *shared, unsigned char *message)
{
    const uint32_t asked = look(&shared->asked);

    memcpy(shared->question, message, MESSAGE_BYTES);
    set(&shared->asked, asked + 1);
    wait_while(&shared->answered, asked);
    memcpy(message, shared->answer, MESSAGE_BYTES);
}

double limit_shm_round_trip(Bench *bench, size_t n)
{
    Shared *shared = raw_shm(bench)->shared;
    unsigned char message[MESSAGE_BYTES] = { 0 };
    double began;

    give_order(shared, ORDER_ECHO, (uint32_t)n + 1);
    round_trip(shared, message); /* the other end is awake */
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        round_trip(shared, message);
    return bench_now() - began;
}

/* Leaves a request to the other end, which has time for it when no more than N_REQUESTS are under
 * way. Returns which one it is. */
static uint32_t ask(Shared *shared, Bench *bench, const float *deltas)
{
    const size_t n_keys = bench->what->n_keys;
    const uint32_t asked = look(&shared->asked);
    Request *request = &shared->requests[asked % N_REQUESTS];

    wait_while(&shared->answered, asked - N_REQUESTS);
    memcpy(request->keys, bench_next_keys(bench), n_keys * sizeof *request->keys);
    if (deltas != NULL)
        memcpy(request->values, deltas, n_keys * sizeof *deltas);
    set(&shared->asked, asked + 1);
    return asked;
}

static void wait_for_all(Shared *shared)
{
    uint32_t answered;

    while ((answered = look(&shared->answered)) != look(&shared->asked))
        wait_while(&shared->answered, answered);
}

static Shared *begin_requests(Bench *bench, uint32_t order, size_t n)
{
    Shared *shared = raw_shm(bench)->shared;

    if (bench->what->n_keys > MAX_KEYS)
        g_error("a limit of %zu keys; %d at most", bench->what->n_keys, MAX_KEYS);
    shared->n_keys = bench->what->n_keys;
    give_order(shared, order, (uint32_t)n + 1);
    return shared;
}

double limit_shm_get(Bench *bench, size_t n)
{
    const size_t n_bytes = bench->what->n_keys * sizeof *bench->values;
    Shared *shared = begin_requests(bench, ORDER_GET, n);
    double began;

    (void)ask(shared, bench, NULL);
    wait_for_all(shared); /* its rows are there */
    began = bench_now();
    for (size_t i = 0; i < n; i++) {
        const uint32_t asked = ask(shared, bench, NULL);

        wait_for_all(shared);
        memcpy(bench->values, shared->requests[asked % N_REQUESTS].values, n_bytes);
        clobber(bench->values);
    }
    return bench_now() - began;
}

double limit_shm_add(Bench *bench, size_t n)
{
    Shared *shared = begin_requests(bench, ORDER_ADD, n);
    double began;

    (void)ask(shared, bench, bench->values);
    wait_for_all(shared);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        (void)ask(shared, bench, bench->values);
    wait_for_all(shared);
    return bench_now() - began;
}

static uint32_t blocks_of(const Bench *bench, size_t n)
{
    const size_t bytes = bench->what->n_keys * bench_width(bench->what) * sizeof(float);

    return (uint32_t)((n * bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

double limit_shm_push(Bench *bench, size_t n)
{
    RawShm *shm = raw_shm(bench);
    const uint32_t n_blocks = blocks_of(bench, n);
    const double began = bench_now();
    uint32_t read;

    give_order(shm->shared, ORDER_TAKE, n_blocks);
    copy_in(shm->shared, shm->own, n_blocks);
    while ((read = look(&shm->shared->read)) != look(&shm->shared->written))
        wait_while(&shm->shared->read, read);
    return bench_now() - began;
}

double limit_shm_pull(Bench *bench, size_t n)
{
    RawShm *shm = raw_shm(bench);
    const uint32_t n_blocks = blocks_of(bench, n);
    const double began = bench_now();

    give_order(shm->shared, ORDER_GIVE, n_blocks);
    copy_out(shm->shared, shm->own, n_blocks);
    return bench_now() - began;
}

void raw_shm_stop(Bench *bench)
{
    RawShm *shm = bench->raw_shm;

    if (shm == NULL)
        return;
    give_order(shm->shared, ORDER_END, 0);
    process_wait(shm->process);
    munmap(shm->shared, sizeof *shm->shared);
    close(shm->fd);
    g_free(shm->own);
    g_free(shm);
    bench->raw_shm = NULL;
}
