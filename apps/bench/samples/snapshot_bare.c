/* Bare threads beside a bare writer: what training beside a snapshot can keep of its rate at best.
 * There is no table, no request, no lock, and no checksum. */
#include "apps/bench/samples/snapshot_bare.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

#include <rubato/mix.h>

enum {
    WIDTH = 16,
    N_KEYS = 100,
    ROWS_AT_ONCE = 16384,
    COPIES = 1 << 19,     /* rows in memory for copies, which is used in turn */
    MOST_TIMES = 1 << 19, /* iterations of a phase whose times are kept */
    STEPS = 1 << 20,      /* of computing, to find out how long one takes */
};

/* How long it goes on alone each time, and at least while rows are written. */
#define PHASE_S 0.4

/* How long it goes on to find out how fast it is without computing between. */
#define FIRST_S 0.1

typedef float Row[WIDTH];

typedef enum {
    PHASE_ALONE, /* before rows are written, and afterwards */
    PHASE_WRITING,
    PHASE_END,
} Phase;

typedef struct {
    uint64_t n;
    double seconds;
    float *times; /* of the first MOST_TIMES */
} BareIterations;

typedef struct {
    const SnapshotBare *what;
    Row *rows, *copies;
    size_t n_bytes; /* of both */
    _Atomic uint64_t *changed;
    _Atomic uint64_t place; /* rows below are written */
    _Atomic Phase phase;
    _Atomic bool has_begun; /* it knows how fast it is */
    BareIterations iterations[PHASE_END];
} Bare;

/* relaxed, here and below: only numbers are passed on; joining the thread orders the rates */
static void copy_before(Bare *bare, const uint64_t *keys, uint64_t *n_copies)
{
    const uint64_t place = atomic_load_explicit(&bare->place, memory_order_relaxed);

    for (size_t i = 0; i < N_KEYS; i++) {
        _Atomic uint64_t *const word = &bare->changed[keys[i] / 64];
        const uint64_t bit = UINT64_C(1) << keys[i] % 64;
        const uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);

        if (keys[i] < place || (bits & bit) != 0)
            continue;
        atomic_store_explicit(word, bits | bit, memory_order_relaxed);
        memcpy(bare->copies[(*n_copies)++ % COPIES], bare->rows[keys[i]], sizeof(Row));
    }
}

static void iterate_once(Bare *bare, const uint64_t *keys)
{
    Row values[N_KEYS];

    for (size_t i = 0; i < N_KEYS; i++)
        memcpy(values[i], bare->rows[keys[i]], sizeof(Row));
    clobber(values);
    for (size_t i = 0; i < N_KEYS; i++)
        for (size_t j = 0; j < WIDTH; j++)
            bare->rows[keys[i]][j] += values[i][j];
}

static void choose_keys(const Bare *bare, uint64_t *number, uint64_t *keys)
{
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = rubato_mix64((*number)++) % bare->what->n_rows;
}

/* So many steps, each of which needs the one before. */
static void compute(uint64_t n_steps)
{
    uint64_t x = 1;

    for (uint64_t i = 0; i < n_steps; i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        __asm__ volatile("" : "+r"(x));
    }
}

/* How many steps an iteration needs besides, so that it takes as long as it should. */
static uint64_t find_steps(Bare *bare, uint64_t *number)
{
    uint64_t keys[N_KEYS], n = 0;
    double began = bench_now(), step_s, iteration_s;

    compute(STEPS);
    step_s = (bench_now() - began) / STEPS;
    began = bench_now();
    for (; bench_now() - began < FIRST_S; n++) {
        choose_keys(bare, number, keys);
        iterate_once(bare, keys);
    }
    iteration_s = (bench_now() - began) / (double)n;
    return (uint64_t)(MAX(N_KEYS / bare->what->keys_per_s - iteration_s, 0) / step_s);
}

static void *iterate_bare(void *data)
{
    Bare *const bare = data;
    uint64_t keys[N_KEYS], number = 0, n_copies = 0;
    const uint64_t n_steps = find_steps(bare, &number);
    double before = bench_now();

    atomic_store_explicit(&bare->has_begun, true, memory_order_relaxed); /* see above */
    for (Phase phase;
         (phase = atomic_load_explicit(&bare->phase, memory_order_relaxed)) != PHASE_END;) {
        BareIterations *const iterations = &bare->iterations[phase];

        choose_keys(bare, &number, keys);
        if (phase == PHASE_WRITING && bare->what->cuts)
            copy_before(bare, keys, &n_copies);
        iterate_once(bare, keys);
        compute(n_steps);

        const double now = bench_now();

        if (iterations->n < MOST_TIMES)
            iterations->times[iterations->n] = (float)(now - before);
        iterations->n++;
        iterations->seconds += now - before;
        before = now;
    }
    return NULL;
}

/* The next rows, as they may be by now: nobody asks what comes of it. */
__attribute__((no_sanitize("thread"))) static void copy_changing(Row *to, const Row *from, size_t n)
{
    memcpy(to, from, n * sizeof(Row));
}

static bool write_all(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t some = write(fd, (const char *)bytes + done, n - done);

        if (some <= 0)
            return false;
        done += (size_t)some;
    }
    return true;
}

/* As fast as it can, and tells the disk only then: so rows are to be copied for a short time. */
static bool write_rows(Bare *bare, int fd, Row *buffer)
{
    const size_t n_all = bare->what->n_rows;
    bool ok = true;

    for (size_t i = 0; i < n_all / 64 + 1; i++)
        atomic_store_explicit(&bare->changed[i], 0, memory_order_relaxed);
    atomic_store_explicit(&bare->place, 0, memory_order_relaxed);
    for (size_t first = 0; first < n_all && ok; first += ROWS_AT_ONCE) {
        const size_t n = MIN(n_all - first, (size_t)ROWS_AT_ONCE);

        copy_changing(buffer, bare->rows + first, n);
        atomic_store_explicit(&bare->place, first + n, memory_order_relaxed);
        ok = write_all(fd, buffer, n * sizeof(Row));
    }
    return ok && fsync(fd) == 0;
}

static bool write_files(Bare *bare, GError **error)
{
    g_autofree char *path = g_build_filename(bare->what->directory, "bare", NULL);
    g_autofree Row *buffer = g_new(Row, ROWS_AT_ONCE);
    const double began = bench_now();
    bool ok = true;

    while (ok && bench_now() - began < PHASE_S) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

        ok = fd >= 0 && write_rows(bare, fd, buffer);
        if (!ok)
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: %s", path, g_strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    (void)unlink(path);
    return ok;
}

static void enter(Bare *bare, Phase phase)
{
    atomic_store_explicit(&bare->phase, phase, memory_order_relaxed); /* see above */
}

static void go_on_alone(Bare *bare)
{
    enter(bare, PHASE_ALONE);
    g_usleep((gulong)(PHASE_S * G_USEC_PER_SEC));
}

static bool measure(Bare *bare, GError **error)
{
    pthread_t thread;
    bool ok;

    if (pthread_create(&thread, NULL, iterate_bare, bare) != 0) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no thread can be started");
        return false;
    }
    while (!atomic_load_explicit(&bare->has_begun, memory_order_relaxed)) /* likewise */
        g_usleep(1000);
    go_on_alone(bare);
    enter(bare, PHASE_WRITING);
    ok = write_files(bare, error);
    go_on_alone(bare);
    enter(bare, PHASE_END);
    pthread_join(thread, NULL);
    return ok;
}

static double rate(const BareIterations *iterations)
{
    return (double)iterations->n / iterations->seconds;
}

static int compare_times(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;

    return (left > right) - (left < right);
}

static double p99(BareIterations *iterations)
{
    const size_t n = MIN(iterations->n, MOST_TIMES);

    qsort(iterations->times, n, sizeof *iterations->times, compare_times);
    return (double)iterations->times[n * 99 / 100];
}

bool snapshot_bare_measure(const SnapshotBare *what, SnapshotBareKept *kept, GError **error)
{
    Bare bare = { .what = what, .n_bytes = (what->n_rows + COPIES) * sizeof(Row) };
    void *const memory =
        mmap(NULL, bare.n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BareIterations *const alone = &bare.iterations[PHASE_ALONE];
    BareIterations *const writing = &bare.iterations[PHASE_WRITING];
    bool ok;

    if (memory == MAP_FAILED) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for bare rows");
        return false;
    }
    (void)madvise(memory, bare.n_bytes, MADV_HUGEPAGE); /* as tables have */
    memset(memory, 0, bare.n_bytes);                    /* in memory now */
    bare.rows = memory;
    bare.copies = bare.rows + what->n_rows;
    bare.changed = g_new0(_Atomic uint64_t, what->n_rows / 64 + 1);
    alone->times = g_new0(float, MOST_TIMES);
    writing->times = g_new0(float, MOST_TIMES);
    ok = measure(&bare, error);
    if (ok && (alone->n == 0 || writing->n == 0)) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                            "a bare thread got no processor");
        ok = false;
    }
    if (ok)
        *kept = (SnapshotBareKept){ .share = rate(writing) / rate(alone),
                                    .p99_times = p99(writing) / p99(alone) };
    g_free(alone->times);
    g_free(writing->times);
    g_free((void *)bare.changed);
    munmap(memory, bare.n_bytes);
    return ok;
}
