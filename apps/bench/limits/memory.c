/* The best that the machine can do: the bare loops beside which the local cases are measured. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

void *raw_allocate(Bench *bench, size_t n_bytes)
{
    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        g_error("no memory for a bare table of %zu bytes", n_bytes);
    (void)madvise(memory, n_bytes, MADV_HUGEPAGE); /* advice: it works without them, slower */
    bench->raw = memory;
    bench->raw_bytes = n_bytes;
    return memory;
}

void raw_free(Bench *bench)
{
    if (bench->raw != NULL)
        munmap(bench->raw, bench->raw_bytes);
    bench->raw = NULL;
}

float *raw_rows(Bench *bench)
{
    const size_t n_values = (size_t)bench->n_rows * bench_width(bench->what);

    if (bench->raw == NULL) {
        float *rows = raw_allocate(bench, n_values * sizeof *rows);

        for (size_t i = 0; i < n_values; i++)
            rows[i] = 1;
    }
    return bench->raw;
}

/* n times the statement, then the seconds that it took. */
#define TIMED(n, written, statement)      \
    const double began_ = bench_now();    \
    for (size_t i_ = 0; i_ < (n); i_++) { \
        statement;                        \
        clobber(written);                 \
    }                                     \
    return bench_now() - began_

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static inline void locked_load(const float *row, float *value)
{
    pthread_mutex_lock(&lock);
    *value = *row;
    pthread_mutex_unlock(&lock);
}

static inline void locked_add(float *row, const float *delta)
{
    pthread_mutex_lock(&lock);
    *row += *delta;
    pthread_mutex_unlock(&lock);
}

double limit_locked_load(Bench *bench, size_t n)
{
    const float *row = &raw_rows(bench)[bench->keys[0]];

    TIMED(n, bench->values, locked_load(row, bench->values));
}

double limit_locked_add(Bench *bench, size_t n)
{
    float *row = &raw_rows(bench)[bench->keys[0]];

    TIMED(n, row, locked_add(row, bench->values));
}

static void gather(const float *rows, const RubatoKey *keys, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = rows[keys[i]];
}

static void scatter_add(float *rows, const RubatoKey *keys, size_t n, const float *values)
{
    for (size_t i = 0; i < n; i++)
        rows[keys[i]] += values[i];
}

void raw_get(Bench *bench, const RubatoKey *keys, size_t n, float *values)
{
    if (bench_is_dense(bench->what))
        gather(raw_rows(bench), keys, n, values);
    else
        raw_hash_get(bench, keys, n, values);
}

void raw_add(Bench *bench, const RubatoKey *keys, size_t n, const float *deltas)
{
    if (bench_is_dense(bench->what))
        scatter_add(raw_rows(bench), keys, n, deltas);
    else
        raw_hash_add(bench, keys, n, deltas);
}

double limit_gather(Bench *bench, size_t n)
{
    const float *rows = raw_rows(bench);

    TIMED(n, bench->values,
          gather(rows, bench_next_keys(bench), bench->what->n_keys, bench->values));
}

double limit_scatter_add(Bench *bench, size_t n)
{
    float *rows = raw_rows(bench);

    TIMED(n, rows, scatter_add(rows, bench_next_keys(bench), bench->what->n_keys, bench->values));
}

double limit_gather_scatter(Bench *bench, size_t n)
{
    const size_t n_keys = bench->what->n_keys;
    float *rows = raw_rows(bench);

    TIMED(n, rows, {
        gather(rows, bench->keys, n_keys, bench->values);
        clobber(bench->values);
        scatter_add(rows, bench->keys, n_keys, bench->values);
    });
}

/* y += x. */
static void add_to(float *restrict to, const float *restrict deltas, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += deltas[i];
}

static void gather_rows(const float *rows, size_t width, const RubatoKey *keys, size_t n,
                        float *values)
{
    for (size_t i = 0; i < n; i++)
        memcpy(values + i * width, rows + keys[i] * width, width * sizeof *rows);
}

static void scatter_add_rows(float *rows, size_t width, const RubatoKey *keys, size_t n,
                             const float *values)
{
    for (size_t i = 0; i < n; i++)
        add_to(rows + keys[i] * width, values + i * width, width);
}

double limit_gather_rows(Bench *bench, size_t n)
{
    const size_t n_keys = bench->what->n_keys, width = bench_width(bench->what);
    const float *rows = raw_rows(bench);

    TIMED(n, bench->values,
          gather_rows(rows, width, bench_next_keys(bench), n_keys, bench->values));
}

/* Bare rows of any length: where each begins, up to the end of the last one, and their values. */
typedef struct {
    const uint64_t *begins;
    const float *values;
} RaggedRows;

static RaggedRows raw_ragged_rows(Bench *bench)
{
    const size_t n_rows = (size_t)bench->n_rows, begins_bytes = (n_rows + 1) * sizeof(uint64_t);

    if (bench->raw == NULL) {
        uint64_t n_values = 0;

        for (uint64_t row = 0; row < n_rows; row++)
            n_values += bench_ragged_length(row);
        uint64_t *begins = raw_allocate(bench, begins_bytes + (size_t)n_values * sizeof(float));
        float *values = (float *)(void *)(begins + n_rows + 1);
        begins[0] = 0;
        for (uint64_t row = 0; row < n_rows; row++)
            begins[row + 1] = begins[row] + bench_ragged_length(row);
        for (uint64_t i = 0; i < n_values; i++)
            values[i] = 1;
    }
    const uint64_t *begins = bench->raw;
    return (RaggedRows){ begins, (const float *)(const void *)(begins + n_rows + 1) };
}

static void gather_ragged(RaggedRows rows, const RubatoKey *keys, size_t n, uint32_t *lengths,
                          float *values)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t begin = rows.begins[keys[i]];
        const size_t length = (size_t)(rows.begins[keys[i] + 1] - begin);

        lengths[i] = (uint32_t)length;
        memcpy(values, rows.values + begin, length * sizeof *values);
        values += length;
    }
}

double limit_gather_ragged(Bench *bench, size_t n)
{
    const RaggedRows rows = raw_ragged_rows(bench);

    TIMED(n, bench->values,
          gather_ragged(rows, bench_next_keys(bench), bench->what->n_keys, bench->lengths,
                        bench->values));
}

double limit_scatter_add_rows(Bench *bench, size_t n)
{
    const size_t n_keys = bench->what->n_keys, width = bench_width(bench->what);
    float *rows = raw_rows(bench);

    TIMED(n, rows, scatter_add_rows(rows, width, bench_next_keys(bench), n_keys, bench->values));
}

double limit_copy_range(Bench *bench, size_t n)
{
    const size_t n_values = bench->what->n_keys * bench_width(bench->what);
    const float *rows = raw_rows(bench);

    TIMED(n, bench->values, memcpy(bench->values, rows, n_values * sizeof *rows));
}

double limit_add_range(Bench *bench, size_t n)
{
    const size_t n_values = bench->what->n_keys * bench_width(bench->what);
    float *rows = raw_rows(bench);

    TIMED(n, rows, add_to(rows, bench->values, n_values));
}

/* In the order of the rows, as a plain loop has it. */
static double add_squares(const float *rows, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)rows[i] * (double)rows[i];
    return sum;
}

double limit_norm(Bench *bench, size_t n)
{
    const size_t n_rows = (size_t)bench->n_rows;
    const float *rows = raw_rows(bench);
    double norm = 0;

    TIMED(n, &norm, norm = sqrt(add_squares(rows, n_rows)));
}
