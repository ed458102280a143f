/* What the cases are measured beside: each limit_ is a `run_limit` of cases.
 *
 * Threads: the worker of rank 0; threads and processes that a limit starts are its own. */
#ifndef RUBATO_APPS_BENCH_LIMITS_LIMITS_H
#define RUBATO_APPS_BENCH_LIMITS_LIMITS_H

#include "apps/bench/bench.h"

/* ---- memory.c: bare loops, and the memory that they go over ---- */

/* The bare rows; each page has been written once, so that it is in memory. */
float *raw_rows(Bench *bench);

/* Keeps the compiler from moving or removing writes to memory. */
static inline void clobber(void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

#define RAW_PAGE_BYTES ((size_t)2 << 20)

/* Fresh memory of huge pages for bench->raw, as far as the kernel has them. */
void *raw_allocate(Bench *bench, size_t n_bytes);
void raw_free(Bench *bench);

/* Reads and adds to rows of one value, in the storage that the case names. */
void raw_get(Bench *bench, const RubatoKey *keys, size_t n, float *values);
void raw_add(Bench *bench, const RubatoKey *keys, size_t n, const float *deltas);

double limit_locked_load(Bench *bench, size_t n);
double limit_locked_add(Bench *bench, size_t n);
double limit_gather(Bench *bench, size_t n);
double limit_scatter_add(Bench *bench, size_t n);
double limit_gather_scatter(Bench *bench, size_t n);
double limit_gather_rows(Bench *bench, size_t n);
double limit_gather_ragged(Bench *bench, size_t n);
double limit_scatter_add_rows(Bench *bench, size_t n);
double limit_copy_range(Bench *bench, size_t n);
double limit_add_range(Bench *bench, size_t n);
double limit_norm(Bench *bench, size_t n);

/* ---- threads.c: bare threads on bare rows ---- */

/* What iterate_fresh does, by a thread for each worker of all nodes, on a part for each server, up
 * to four. Each part is behind a lock that spins. The threads keep the model's bound on how far one
 * may be ahead of another. */
double limit_threads(Bench *bench, size_t n);

/* Seconds of a barrier of so many bare threads. */
double raw_barrier(uint32_t n_threads, size_t n);

/* ---- parts.c: a bare thread for each of two servers ---- */

/* Adds of sorted keys to rows of one value, by two servers with half of the rows each, and a worker
 * beside them. The second: each also copies what it gets on to the other one, which adds it to a
 * copy of the same rows: what one replica costs at least on this machine. */
double limit_parts_add(Bench *bench, size_t n);
double limit_parts_add_twice(Bench *bench, size_t n);

/* ---- reduce.c: bare threads or processes that add up arrays of doubles ---- */

/* The sums of two arrays. */
void raw_sum(double *sums, const double *one, const double *other, size_t n);

typedef struct RawReduce RawReduce;

/* Whether the case's workers can do it: they are not too many, and use the memory of this host; or
 * over TCP, if the arrays are so large that a ring is the fastest way. */
bool raw_reduce_suits(const Bench *bench);

/* Each worker calls all of these at the same time. NULL: with an error. (transfer full) */
RawReduce *raw_reduce_join(const Bench *bench, GError **error);
void raw_reduce_meet(RawReduce *reduce);
void raw_reduce(RawReduce *reduce, const double *input, double *output, size_t n);
void raw_reduce_leave(RawReduce *reduce); /* NULL is allowed */

/* ---- ring.c: the same over TCP, which reduce.c calls ---- */

typedef struct RawRing RawRing;

/* As those of reduce.c. */
RawRing *raw_ring_join(const Bench *bench, GError **error);
void raw_ring_meet(RawRing *ring);
void raw_ring_reduce(RawRing *ring, const double *input, double *output, size_t n);
void raw_ring_leave(RawRing *ring);

/* ---- hash.c: a bare open-addressing table with prefetch ---- */

void raw_hash_get(Bench *bench, const RubatoKey *keys, size_t n, float *values);
void raw_hash_add(Bench *bench, const RubatoKey *keys, size_t n, const float *deltas);

double limit_hash_get(Bench *bench, size_t n);
double limit_hash_add(Bench *bench, size_t n);

/* ---- zmq.c: a bare DEALER here, a bare ROUTER in a process of its own ---- */

double limit_zmq_round_trip(Bench *bench, size_t n);
double limit_zmq_stream(Bench *bench, size_t n);
double limit_zmq_push(Bench *bench, size_t n);
double limit_zmq_pull(Bench *bench, size_t n);
void raw_zmq_stop(Bench *bench);
int raw_zmq_serve(void); /* what the other process runs */

/* ---- shm.c: memory shared with a process of its own ---- */

double limit_shm_round_trip(Bench *bench, size_t n);
double limit_shm_push(Bench *bench, size_t n);
double limit_shm_pull(Bench *bench, size_t n);

/* The other process has the rows: keys go to it, values come back or go with them. */
double limit_shm_get(Bench *bench, size_t n);
double limit_shm_add(Bench *bench, size_t n);
void raw_shm_stop(Bench *bench);
int raw_shm_serve(const BenchCase *what, uint64_t n_rows); /* what the other process runs */

/* ---- tcp.c: a socket to a process of its own ---- */

double limit_tcp_round_trip(Bench *bench, size_t n);
double limit_tcp_get(Bench *bench, size_t n);
double limit_tcp_add(Bench *bench, size_t n);
void raw_tcp_stop(Bench *bench);
int raw_tcp_serve(const BenchCase *what, uint64_t n_rows); /* what the other process runs */

#endif
