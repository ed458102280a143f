/* Two processes with shared memory: the limit of the cases on one host. The other process is this
 * program again, with the memory as file descriptor 3.
 *
 * Round trips go by a futex alone, without spinning. Streams are copied through a ring of blocks:
 * one process copies in, the other copies out, and each sleeps only if there is nothing to do. */
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
};

enum {
    ORDER_ECHO = 1,
    ORDER_TAKE, /* copy blocks out */
    ORDER_GIVE, /* copy blocks in */
    ORDER_END,
};

typedef struct {
    _Alignas(64) _Atomic uint32_t turn; /* round trips: odd while it is the other's */

    /* Streams: blocks so far. */
    _Alignas(64) _Atomic uint32_t written;
    _Alignas(64) _Atomic uint32_t read;

    _Alignas(64) _Atomic uint32_t n_orders;
    uint32_t order, n; /* written before n_orders counts up */

    _Alignas(64) unsigned char blocks[N_BLOCKS][BLOCK_BYTES];
} Shared;

typedef struct {
    Shared *shared;
    int fd;
    unsigned char *own; /* as much as a ring: what is copied in and out */
    GPid process;
} RawShm;

/* All loads acquire and all stores release: a process that sees a counter moved also sees what was
 * written before. */
static uint32_t look(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void set_and_wake(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_while(_Atomic uint32_t *word, uint32_t value, unsigned spins)
{
    while (spins-- > 0 && look(word) == value)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        clobber(NULL);
#endif
    while (look(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void copy_in(Shared *shared, const unsigned char *from, uint32_t n)
{
    uint32_t written = look(&shared->written);

    for (; n-- > 0; set_and_wake(&shared->written, ++written)) {
        const uint32_t at = written % N_BLOCKS;

        wait_while(&shared->read, written - N_BLOCKS, SPINS);
        memcpy(shared->blocks[at], from + (size_t)at * BLOCK_BYTES, BLOCK_BYTES);
    }
}

static void copy_out(Shared *shared, unsigned char *to, uint32_t n)
{
    uint32_t read = look(&shared->read);

    for (; n-- > 0; set_and_wake(&shared->read, ++read)) {
        const uint32_t at = read % N_BLOCKS;

        wait_while(&shared->written, read, SPINS);
        memcpy(to + (size_t)at * BLOCK_BYTES, shared->blocks[at], BLOCK_BYTES);
    }
}

static void echo(Shared *shared, uint32_t n)
{
    uint32_t turn = look(&shared->turn);

    if (turn % 2 != 0) /* ours already */
        turn--;
    for (; n-- > 0; turn += 2) {
        wait_while(&shared->turn, turn, 0);
        set_and_wake(&shared->turn, turn + 2);
    }
}

int raw_shm_serve(void)
{
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
    g_autofree unsigned char *own = g_malloc0((size_t)N_BLOCKS * BLOCK_BYTES);
    uint32_t n_orders = 0;

    if (shared == MAP_FAILED)
        return 1;
    for (;;) {
        wait_while(&shared->n_orders, n_orders++, 0);
        if (shared->order == ORDER_ECHO)
            echo(shared, shared->n);
        else if (shared->order == ORDER_TAKE)
            copy_out(shared, own, shared->n);
        else if (shared->order == ORDER_GIVE)
            copy_in(shared, own, shared->n);
        else
            return 0;
    }
}

static RawShm *raw_shm(Bench *bench)
{
    RawShm *shm = bench->raw_shm;
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
    if (!process_start(&(ProcessStart){ .arguments = { "--serve-shm" },
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
    set_and_wake(&shared->n_orders, look(&shared->n_orders) + 1);
}

static void round_trip(Shared *shared)
{
    const uint32_t turn = look(&shared->turn);

    set_and_wake(&shared->turn, turn + 1);
    wait_while(&shared->turn, turn + 1, 0);
}

double limit_shm_round_trip(Bench *bench, size_t n)
{
    Shared *shared = raw_shm(bench)->shared;
    double began;

    give_order(shared, ORDER_ECHO, (uint32_t)n + 1);
    round_trip(shared); /* the other end is awake */
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        round_trip(shared);
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
        wait_while(&shm->shared->read, read, SPINS);
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
