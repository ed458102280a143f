/* Bare threads or processes of this host that add up what they have: the limit of an allreduce.
 * Over TCP they are in a ring (ring.c). Otherwise they are as many as workers, and wait for one
 * another by spinning; if they are more than the processors, each gives its own away after every
 * look. Each adds its share of the values. Threads read all inputs and write all outputs. Processes
 * do not see the others' arrays: each copies what it has of the others' shares to memory that all
 * share, a piece at a time, and then the others' results out of it. Two processes that have little
 * do in one exchange what takes two otherwise: each copies all of its own, while its output comes
 * into the cache, and adds all. Large arrays are written past
 * the caches, by the loop that adds, if the processor has vectors of 512 bits: in a loop of its own
 * that takes longer. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <rubato/vector_clones.h>

#include "apps/bench/limits/limits.h"

enum {
    MOST = 16,        /* workers */
    PIECE = 16 << 10, /* values of a worker's share of a piece */
    LINE_BYTES = 64,
    LINE_VALUES = 8,
    LARGE_BYTES = 1 << 20,
    BLOCK = 512,       /* values that stay in the first cache */
    LOOKS = 1000,      /* before a processor is given away */
    LOOKS_SHARING = 1, /* of more workers than processors: who is waited for may need it */
};

typedef struct {
    _Alignas(128) _Atomic uint64_t came; /* how often */
    const double *input;                 /* of a thread */
    double *output;
} Seat;

typedef struct {
    Seat seats[MOST];
    _Alignas(128) double values[]; /* of each worker two pieces, in turn */
} Area;

struct RawReduce {
    RawRing *ring; /* over TCP; then there is nothing else */
    Area *area;
    size_t n_bytes; /* of it */
    uint32_t rank, n;
    uint64_t n_came, n_pieces; /* how often this one has come; pieces so far */
    unsigned n_looks;          /* before a processor is given away */
    bool in_process;
};

bool raw_reduce_suits(const Bench *bench)
{
    const uint32_t n = rubato_worker_n_workers(bench->worker);

    if (bench->what->place == BENCH_PLACE_TCP)
        return n > 1 && bench->what->tensor_bytes >= LARGE_BYTES;
    return n > 1 && n <= MOST &&
           (bench->what->place == BENCH_PLACE_LOCAL || bench->what->place == BENCH_PLACE_HOST);
}

static double *piece_of(const RawReduce *reduce, uint32_t rank, uint64_t turn)
{
    return reduce->area->values + (rank * 2 + turn % 2) * (size_t)reduce->n * PIECE;
}

/* All workers: the memory of that name, which rank 0 makes and the others find. */
static bool open_area(const Bench *bench, const char *name, RawReduce *reduce, GError **error)
{
    int fd = -1;

    if (reduce->rank == 0)
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (reduce->rank == 0 && fd != -1 && ftruncate(fd, (off_t)reduce->n_bytes) != 0)
        g_error("no memory to share: %s", g_strerror(errno));
    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    if (reduce->rank != 0)
        fd = shm_open(name, O_RDWR, 0);
    reduce->area = mmap(NULL, reduce->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd == -1 || reduce->area == MAP_FAILED)
        g_error("no memory to share: %s", g_strerror(errno));
    close(fd);
    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    if (reduce->rank == 0)
        shm_unlink(name);
    return true;
}

static RawReduce *join_ring(const Bench *bench, GError **error)
{
    RawRing *const ring = raw_ring_join(bench, error);

    if (ring == NULL)
        return NULL;
    RawReduce *const reduce = g_new(RawReduce, 1);
    *reduce = (RawReduce){ .ring = ring };
    return reduce;
}

RawReduce *raw_reduce_join(const Bench *bench, GError **error)
{
    const uint32_t n = rubato_worker_n_workers(bench->worker);
    const size_t values_of = 2 * (size_t)n * PIECE * sizeof(double);
    int64_t pid = getpid();
    const RubatoTensor who = { .name = "bare",
                               .dtype = RUBATO_I64,
                               .n_dims = 1,
                               .shape = { 1 },
                               .input = &pid,
                               .output = &pid };

    if (bench->what->place == BENCH_PLACE_TCP)
        return join_ring(bench, error);
    if (!rubato_worker_broadcast(bench->worker, &who, 0, error))
        return NULL;
    g_autofree char *name = g_strdup_printf("/rubato-bench-%" G_GINT64_FORMAT, pid);
    g_autofree RawReduce *reduce = g_new(RawReduce, 1);
    *reduce = (RawReduce){ .n_bytes = sizeof(Area) + n * values_of,
                           .rank = rubato_worker_rank(bench->worker),
                           .n = n,
                           .n_looks = n > g_get_num_processors() ? LOOKS_SHARING : LOOKS,
                           .in_process = bench->what->place == BENCH_PLACE_LOCAL };
    if (!open_area(bench, name, reduce, error))
        return NULL;
    memset(piece_of(reduce, reduce->rank, 0), 0, values_of); /* it is there */
    return g_steal_pointer(&reduce);
}

void raw_reduce_leave(RawReduce *reduce)
{
    if (reduce != NULL && reduce->ring != NULL)
        raw_ring_leave(reduce->ring);
    else if (reduce != NULL)
        munmap(reduce->area, reduce->n_bytes);
    g_free(reduce);
}

/* All meet in the memory that they share. */
static void meet(RawReduce *reduce)
{
    Seat *const seats = reduce->area->seats;

    atomic_store_explicit(&seats[reduce->rank].came, ++reduce->n_came, memory_order_release);
    for (uint32_t i = 0; i < reduce->n; i++)
        for (unsigned looks = 1;
             atomic_load_explicit(&seats[i].came, memory_order_acquire) < reduce->n_came; looks++)
            if (looks % reduce->n_looks == 0)
                sched_yield(); /* others may have taken its processor */
}

void raw_reduce_meet(RawReduce *reduce)
{
    if (reduce->ring != NULL)
        raw_ring_meet(reduce->ring);
    else
        meet(reduce);
}

RUBATO_VECTOR_CLONES void raw_sum(double *sums, const double *one, const double *other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] = one[i] + other[i];
}

static size_t share_begin(const RawReduce *reduce, uint32_t rank, size_t n)
{
    return n * rank / reduce->n;
}

/* Adds a block of so many arrays. */
static void add_block(double *sums, const double *const *inputs, uint32_t n_inputs, size_t begin,
                      size_t n)
{
    const double *one = inputs[0] + begin;

    for (uint32_t i = 1; i < n_inputs; i++, one = sums)
        raw_sum(sums, one, inputs[i] + begin, n);
}

/* Large arrays past the caches, in whole lines. */
static void copy_out(double *to, const double *from, size_t n, bool is_large)
{
#if defined(__SSE2__)
    while (is_large && n > 0 && (uintptr_t)to % LINE_BYTES != 0) {
        *to++ = *from++;
        n--;
    }
    for (; is_large && n >= LINE_VALUES; n -= LINE_VALUES, to += LINE_VALUES, from += LINE_VALUES)
        for (size_t i = 0; i < LINE_VALUES; i += 2)
            _mm_stream_pd(to + i, _mm_loadu_pd(from + i));
#else
    (void)is_large;
#endif
    memcpy(to, from, n * sizeof *to);
}

/* What was written past the caches comes before what follows. */
static void end_copies(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Where sums go: large ones past the caches to the outputs, and to memory that is shared. */
typedef struct {
    double *const *outputs; /* one at least */
    uint32_t n;
    double *shared; /* NULL: there is none */
} Sums;

#if defined(__x86_64__) && defined(__GNUC__)
/* Adds whole lines, which begin at one in each output. */
__attribute__((target("avx512f"))) static void add_lines(const Sums *sums, const double *one,
                                                         const double *other, size_t begin,
                                                         size_t n)
{
    for (size_t i = begin; i < begin + n; i += LINE_VALUES) {
        const __m512d sum = _mm512_add_pd(_mm512_loadu_pd(one + i), _mm512_loadu_pd(other + i));

        if (sums->shared != NULL)
            _mm512_storeu_pd(sums->shared + i, sum);
        for (uint32_t k = 0; k < sums->n; k++)
            _mm512_stream_pd(sums->outputs[k] + i, sum);
    }
}

/* Adds what it can of two large arrays; returns how many values, from the beginning on. */
static size_t add_at_once(const Sums *sums, const double *const *inputs, uint32_t n_inputs,
                          size_t begin, size_t end)
{
    if (n_inputs != 2 || !__builtin_cpu_supports("avx512f"))
        return 0;
    for (uint32_t i = 0; i < sums->n; i++)
        if ((uintptr_t)(sums->outputs[i] + begin) % LINE_BYTES != 0)
            return 0;
    const size_t n = (end - begin) / LINE_VALUES * LINE_VALUES;
    add_lines(sums, inputs[0], inputs[1], begin, n);
    return n;
}
#else
static size_t add_at_once(const Sums *sums, const double *const *inputs, uint32_t n_inputs,
                          size_t begin, size_t end)
{
    (void)sums;
    (void)inputs;
    (void)n_inputs;
    (void)begin;
    (void)end;
    return 0;
}
#endif

/* Adds values from all inputs. */
static void add_share(const Sums *sums, const double *const *inputs, uint32_t n_inputs,
                      size_t begin, size_t end, bool is_large)
{
    _Alignas(64) double block[BLOCK];

    for (size_t n; begin < end; begin += n) {
        const size_t before = (uintptr_t)(sums->outputs[0] + begin) % LINE_BYTES / sizeof *block;

        n = is_large ? add_at_once(sums, inputs, n_inputs, begin, end) : 0;
        if (n > 0)
            continue;
        n = MIN(end - begin, BLOCK - before); /* up to where a line ends */
        add_block(block, inputs, n_inputs, begin, n);
        if (sums->shared != NULL)
            memcpy(sums->shared + begin, block, n * sizeof *block);
        for (uint32_t i = 0; i < sums->n; i++)
            copy_out(sums->outputs[i] + begin, block, n, is_large);
    }
}

static void add_by_threads(RawReduce *reduce, const double *input, double *output, size_t n,
                           bool is_large)
{
    Seat *const seats = reduce->area->seats;
    const double *inputs[MOST];
    double *outputs[MOST];

    seats[reduce->rank].input = input;
    seats[reduce->rank].output = output;
    meet(reduce);
    for (uint32_t i = 0; i < reduce->n; i++) {
        inputs[i] = seats[i].input;
        outputs[i] = seats[i].output;
    }
    add_share(&(Sums){ .outputs = outputs, .n = reduce->n }, inputs, reduce->n,
              share_begin(reduce, reduce->rank, n), share_begin(reduce, reduce->rank + 1, n),
              is_large);
    end_copies();
    meet(reduce);
}

/* Who has met the others for the next piece knows that all have read the one before. */
static void add_piece(RawReduce *reduce, const double *input, double *output, size_t n,
                      bool is_large)
{
    const uint64_t turn = reduce->n_pieces++;
    const uint32_t rank = reduce->rank;
    double *const own = piece_of(reduce, rank, turn);
    const double *inputs[MOST];

    for (uint32_t i = 0; i < reduce->n; i++) {
        const size_t begin = share_begin(reduce, i, n), end = share_begin(reduce, i + 1, n);

        inputs[i] = i == rank ? input : piece_of(reduce, i, turn);
        if (i != rank)
            memcpy(own + begin, input + begin, (end - begin) * sizeof *own);
    }
    meet(reduce);
    add_share(&(Sums){ .outputs = &output, .n = 1, .shared = own }, inputs, reduce->n,
              share_begin(reduce, rank, n), share_begin(reduce, rank + 1, n), is_large);
    meet(reduce);
    for (uint32_t i = 0; i < reduce->n; i++) {
        const size_t begin = share_begin(reduce, i, n), end = share_begin(reduce, i + 1, n);

        if (i != rank)
            copy_out(output + begin, piece_of(reduce, i, turn) + begin, end - begin, is_large);
    }
}

/* Copies whole lines, and what is left; as much of another array comes into the cache meanwhile. */
static void copy_fetching(double *to, const double *from, const double *fetched, size_t n)
{
    for (; n >= LINE_VALUES;
         n -= LINE_VALUES, to += LINE_VALUES, from += LINE_VALUES, fetched += LINE_VALUES) {
        __builtin_prefetch(fetched, /* rw= */ 1);
        memcpy(to, from, LINE_BYTES);
    }
    memcpy(to, from, n * sizeof *to);
}

/* Of two processes. Who has met the other for the next piece knows that it has read this one. */
static void add_all(RawReduce *reduce, const double *input, double *output, size_t n)
{
    const uint64_t turn = reduce->n_pieces++;
    double *const own = piece_of(reduce, reduce->rank, turn);
    const double *const inputs[] = { reduce->rank == 0 ? input : piece_of(reduce, 0, turn),
                                     reduce->rank == 1 ? input : piece_of(reduce, 1, turn) };

    copy_fetching(own, input, output, n);
    meet(reduce);
    raw_sum(output, inputs[0], inputs[1], n);
}

void raw_reduce(RawReduce *reduce, const double *input, double *output, size_t n)
{
    const bool is_large = n * sizeof *input >= LARGE_BYTES;

    if (reduce->ring != NULL) {
        raw_ring_reduce(reduce->ring, input, output, n);
        return;
    }
    if (reduce->in_process)
        add_by_threads(reduce, input, output, n, is_large);
    else
        for (size_t begin = 0, n_piece; begin < n; begin += n_piece) {
            n_piece = MIN(n - begin, (size_t)reduce->n * PIECE);
            if (reduce->n == 2 && !is_large)
                add_all(reduce, input + begin, output + begin, n_piece);
            else
                add_piece(reduce, input + begin, output + begin, n_piece, is_large);
        }
    if (is_large)
        end_copies();
}
