/* rubato-bench: each case beside the limit of the machine, measured in the same run.
 *
 * A case has an operation of Rubato and a raw loop that does the least that the operation could
 * do: a mutex around a load, a gather, a bare ZeroMQ round trip. Samples of the two are taken in
 * turn, so that both see the same machine.
 *
 * Threads: a case runs on the worker of rank 0; others of its task run `company`. */
#ifndef RUBATO_APPS_BENCH_BENCH_H
#define RUBATO_APPS_BENCH_BENCH_H

#include <rubato/rubato.h>

typedef struct Bench Bench;

/* What a sample counts. Seconds are per operation; the others are per second of a sample. */
typedef enum {
    BENCH_SECONDS,
    BENCH_PER_SECOND,
    BENCH_KEYS_PER_SECOND,
    BENCH_BYTES_PER_SECOND,
} BenchUnit;

typedef struct {
    const char *name;
    const char *what;  /* the operation, in a few words */
    const char *limit; /* what it is measured beside */
    BenchUnit unit;

    bool two_processes;        /* the worker on one node, the server on another */
    uint32_t workers, servers; /* 0: one */
    RubatoTableSpec table;
    size_t n_keys; /* of a request */
    bool sorted;
    size_t n_operations; /* of a sample; fewer with --quick */

    /* Does n operations; run_limit does the same by bare means, and returns the seconds that it
     * took, set-up left out. Each is given its turn by bench.c. */
    bool (*run)(Bench *bench, size_t n, GError **error);
    double (*run_limit)(Bench *bench, size_t n);
} BenchCase;

/* What a case works on, made before the first sample. */
struct Bench {
    const BenchCase *what;
    RubatoWorker *worker;
    RubatoKVTable *table;
    RubatoKey *keys; /* what->n_keys random ones of the table's range */
    float *values;   /* what->n_keys rows of what->table.width */
    float *raw;     /* the bare table: as many rows as the table has, NULL until a limit wants it */
    void *raw_peer; /* the bare echo at the other end, for limits between processes */
    double *latencies; /* of the operations of a sample, seconds; NULL where nobody asks */
};

/* The cases, ended by one without a name. */
extern const BenchCase bench_cases[];

/* Seconds, monotonic. */
double bench_now(void);

/* ---- limits.c ---- */

double limit_locked_load(Bench *bench, size_t n);
double limit_locked_add(Bench *bench, size_t n);
double limit_gather(Bench *bench, size_t n);
double limit_scatter_add(Bench *bench, size_t n);
double limit_gather_scatter(Bench *bench, size_t n);

/* ---- raw_zmq.c: a bare DEALER here, a bare ROUTER that echoes in a process of its own ---- */

double limit_zmq_round_trip(Bench *bench, size_t n);
double limit_zmq_stream(Bench *bench, size_t n);

/* Ends the echo, if one was started. */
void raw_zmq_stop(Bench *bench);

/* What the process of the echo runs. */
int raw_zmq_echo(void);

/* ---- measure.c ---- */

typedef struct {
    double min, median, max;
    double p99; /* of single operations, 0 where they were not timed */
} BenchFigures;

typedef struct {
    const BenchCase *what;
    BenchFigures own, limit;
    double ratio; /* the medians' */
} BenchResult;

typedef struct {
    unsigned repeat;  /* samples */
    double scale;     /* of n_operations */
    const char *self; /* this program, to start as the other node */
} BenchOptions;

/* Measures one case in an engine of its own. */
bool bench_measure(const BenchCase *what, const BenchOptions *options, BenchResult *result,
                   GError **error);

/* What the process of the other node runs. */
int bench_peer(const char *case_name);

/* ---- report.c ---- */

void report_header(void);
void report_line(const BenchResult *result);

/* One object: machine, build, cases. */
bool report_json(const char *path, const BenchResult *results, size_t n, GError **error);

/* The ratios as bars, drawn by gnuplot. */
bool report_plot(const char *path, const BenchResult *results, size_t n, GError **error);

const char *report_unit(BenchUnit unit);

#endif
