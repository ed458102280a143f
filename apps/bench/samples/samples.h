/* What the cases do with Rubato: each is a `run` or a `sample` of cases.
 *
 * Threads: the workers of a case. */
#ifndef RUBATO_APPS_BENCH_SAMPLES_SAMPLES_H
#define RUBATO_APPS_BENCH_SAMPLES_SAMPLES_H

#include "apps/bench/bench.h"

/* ---- operations.c: each is a `run` of cases ---- */

bool get_key(Bench *bench, size_t n, GError **error);
bool add_key(Bench *bench, size_t n, GError **error);
bool get_keys(Bench *bench, size_t n, GError **error);
bool get_range(Bench *bench, size_t n, GError **error);
bool call_norm(Bench *bench, size_t n, GError **error);
bool iterate(Bench *bench, size_t n, GError **error);

/* By tickets, each waited for at once; ranges are borrowed. */
bool push_key(Bench *bench, size_t n, GError **error);
bool pull_key(Bench *bench, size_t n, GError **error);
bool add_get_key(Bench *bench, size_t n, GError **error);
bool push_range(Bench *bench, size_t n, GError **error);
bool pull_range(Bench *bench, size_t n, GError **error);

/* The same as iterate with the next set of keys each time. */
bool iterate_fresh(Bench *bench, size_t n, GError **error);

/* Adds are asynchronous, so these end with a Get; its answer shows that they have arrived. */
bool add_key_then_get(Bench *bench, size_t n, GError **error);
bool add_keys_then_get(Bench *bench, size_t n, GError **error);
bool add_range_then_get(Bench *bench, size_t n, GError **error);

/* The same with keys that the table has not had. */
bool add_new_keys_then_get(Bench *bench, size_t n, GError **error);

/* ---- ragged.c: likewise ---- */

bool get_ragged(Bench *bench, size_t n, GError **error);

/* ---- counts.c: each is a `sample` of cases ---- */

bool sample_growth(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_expiry(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_messages(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_mixed(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_row_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_tickets(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_handler_tickets(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_resident(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_key_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_barrier(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_nodes(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- admission.c: a `sample` of cases with a plain table, of n Adds to each of the two ---- */

bool sample_admission(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_admission_of_rare(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- collectives.c: a `sample` of cases ---- */

bool sample_allreduce(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_allreduce_group(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- exchanges.c: likewise ---- */

bool sample_allreduce_f16(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_allreduce_bf16(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_reduce_scatter(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_allgather(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_alltoall(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_broadcast(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- replica_copy.c: a `sample` of cases that drain a node ---- */

bool sample_replica_copy(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- priority.c: a `sample` of a case, of n Gets ---- */

bool sample_priority(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- data.c: each is a `sample` of cases, of a file of n rows ---- */

bool sample_parse_libsvm(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_parse_csv(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_read_text(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_read_cache(Bench *bench, size_t n, BenchSample *sample, GError **error);
void data_close(Bench *bench);

/* ---- snapshot.c: each is a `sample` of cases, of a table of n rows ---- */

bool sample_snapshot_write(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_restore(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- snapshot_increment.c: likewise ---- */

bool sample_snapshot_increment_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_increment_time(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- snapshot_seconds.c: likewise ---- */

bool sample_snapshot_each_second(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_full_each(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- stream.c: each is a `sample` of cases, of n rows added a second ---- */

bool sample_stream_lag(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_stream_lag_zmq(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_stream_back(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- snapshot_load.c: likewise ---- */

bool sample_snapshot_during(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_beside(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_p99(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_memory(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_pause(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_snapshot_pause_processor(Bench *bench, size_t n, BenchSample *sample, GError **error);

#endif
