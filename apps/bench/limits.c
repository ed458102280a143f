/* What the machine can do at best: the bare loops beside which the local cases are measured. */
#include <pthread.h>
#include <time.h>

#include "apps/bench/bench.h"

double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The bare table, touched once so that its pages are there. */
static float *raw_table(Bench *bench)
{
    const size_t n_values = (size_t)bench->what->table.n_keys * MAX(1, bench->what->table.width);

    if (bench->raw == NULL) {
        bench->raw = g_new(float, n_values);
        for (size_t i = 0; i < n_values; i++)
            bench->raw[i] = 1;
    }
    return bench->raw;
}

/* Keeps the compiler from moving or dropping what was written to memory. */
static inline void clobber(void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

double limit_locked_load(Bench *bench, size_t n)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const float *row = &raw_table(bench)[bench->keys[0]];
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        bench->values[0] = *row;
        pthread_mutex_unlock(&lock);
        clobber(bench->values);
    }
    return bench_now() - began;
}

double limit_locked_add(Bench *bench, size_t n)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    float *row = &raw_table(bench)[bench->keys[0]];
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        *row += bench->values[0];
        pthread_mutex_unlock(&lock);
        clobber(row);
    }
    return bench_now() - began;
}

static void gather(const float *table, const RubatoKey *keys, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = table[keys[i]];
}

static void scatter_add(float *table, const RubatoKey *keys, size_t n, const float *values)
{
    for (size_t i = 0; i < n; i++)
        table[keys[i]] += values[i];
}

double limit_gather(Bench *bench, size_t n)
{
    const float *table = raw_table(bench);
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        gather(table, bench->keys, bench->what->n_keys, bench->values);
        clobber(bench->values);
    }
    return bench_now() - began;
}

double limit_scatter_add(Bench *bench, size_t n)
{
    float *table = raw_table(bench);
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        scatter_add(table, bench->keys, bench->what->n_keys, bench->values);
        clobber(table);
    }
    return bench_now() - began;
}

double limit_gather_scatter(Bench *bench, size_t n)
{
    float *table = raw_table(bench);
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        gather(table, bench->keys, bench->what->n_keys, bench->values);
        clobber(bench->values);
        scatter_add(table, bench->keys, bench->what->n_keys, bench->values);
        clobber(table);
    }
    return bench_now() - began;
}
