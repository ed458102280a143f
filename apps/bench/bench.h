/* rubato-bench: each case beside the limit of the machine, measured in the same run.
 *
 * A case has an operation of Rubato and a raw loop that does the least that the operation could
 * do: a mutex around a load, a gather, a bare ZeroMQ round trip. Samples of the two are taken in
 * turn, so that both see the same machine.
 *
 *   cases_*.c what is measured, each with its goal operations.c what the cases do with Rubato
 *   counts.c samples that count messages, bytes and stalls data.c samples that read files of
 *   training data limits.c, raw_*.c, reference_run.c what they are measured beside measure.c taking
 *   the samples; nodes.c, process.c: with a second process goal.c, report*.c what comes out
 *
 * Threads: a case runs on the worker of rank 0; other workers of its task run beside it. */
#ifndef RUBATO_APPS_BENCH_BENCH_H
#define RUBATO_APPS_BENCH_BENCH_H

#include <rubato/rubato.h>

typedef struct Bench Bench;
typedef struct ReferenceRun ReferenceRun;

/* What a sample counts. Seconds are of one operation; rates are of a sample. */
typedef enum {
    BENCH_UNIT_SECONDS,
    BENCH_UNIT_PER_SECOND,
    BENCH_UNIT_KEYS_PER_SECOND,
    BENCH_UNIT_BYTES_PER_SECOND,
    BENCH_UNIT_BYTES,
    BENCH_UNIT_MESSAGES,
} BenchUnit;

/* Where workers and servers are. */
typedef enum {
    BENCH_PLACE_LOCAL,   /* in one process */
    BENCH_PLACE_HOST,    /* workers in one, servers in another, as such nodes talk by default */
    BENCH_PLACE_TCP,     /* the same over TCP */
    BENCH_PLACE_TCP_MAC, /* with a MAC for each packet */
    BENCH_PLACE_TCP_ENCRYPTED, /* encrypted */
    BENCH_PLACE_ZMQ,           /* over ZeroMQ, without a secret */
    BENCH_PLACE_ZMQ_CURVE,     /* with one: so encrypted */
} BenchPlace;

typedef enum {
    BENCH_KEYS_RANDOM,
    BENCH_KEYS_SORTED, /* random ones, in order */
    BENCH_KEYS_ZIPF,   /* in order; the key of rank r comes up as often as 1/r */
} BenchKeys;

/* What a case should reach; 0: no goal. Rates should be at least that, other figures at most. */
typedef struct {
    double ratio;  /* the medians' */
    double median; /* in the case's unit */
    double worst;  /* the largest of all samples */
    double p99;    /* by the median */
} BenchGoal;

/* One sample of a case and of its limit, in the case's unit. A limit of 0: there is none. */
typedef struct {
    double own, limit;
} BenchSample;

typedef struct {
    const char *name;
    const char *what;  /* the operation, in a few words */
    const char *limit; /* what it is measured beside */
    BenchGoal goal;
    BenchUnit unit;

    BenchPlace place;
    uint32_t workers, servers; /* of a node; 0: one */
    BenchKeys keys;            /* of a request */
    bool mixed;                /* two nodes: both have the workers and the servers */
    bool starts_empty;         /* otherwise each row was written before the first sample */
    RubatoTableSpec table;     /* its n_keys is left 0: */
    uint64_t n_rows;           /* keys 0 .. n_rows - 1; of hash storage, as many scattered ones */
    size_t n_keys;             /* of a request */
    size_t n_sets;             /* of keys, which take turns; 0: one */
    size_t n_operations;       /* of a sample; fewer with --quick */

    /* Does n operations. run_limit does the same without Rubato, and returns the seconds that it
     * took without its set-up. */
    bool (*run)(Bench *bench, size_t n, GError **error);
    double (*run_limit)(Bench *bench, size_t n);

    /* Instead of both, if a sample is not a time: takes a sample of n operations on every worker;
     * the one of rank 0 counts. */
    bool (*sample)(Bench *bench, size_t n, BenchSample *sample, GError **error);
} BenchCase;

/* More of what a case found out: beside its figures, in words. */
typedef struct {
    const char *name;
    double value;
} BenchDetail;

enum { BENCH_MAX_DETAILS = 8 };

typedef struct {
    BenchDetail at[BENCH_MAX_DETAILS];
    size_t n;
} BenchDetails;

/* What a case works on, made before the first sample. */
struct Bench {
    const BenchCase *what;
    uint64_t n_rows; /* what->n_rows, or fewer with --quick */
    RubatoEngine *engine;
    RubatoWorker *worker;
    RubatoKVTable *table;
    RubatoSparseKVClientTable *sparse; /* under a model that takes announcements; else NULL */
    RubatoKey *keys;   /* what->n_keys of the table's, chosen as what->keys says; n_sets times */
    uint64_t turn;     /* how many sets have had theirs */
    float *values;     /* what->n_keys rows of what->table.width */
    double *latencies; /* of each operation of a sample, seconds; NULL if nobody asks */

    uint64_t next_row;      /* of a table that grows */
    size_t resident_before; /* bytes of the process before the table was there */
    long peer_pid;          /* of the other node; 0: there is none */
    BenchDetails *details;

    char *data_path; /* data.c: the file that is read; NULL until a sample wants it */

    void *raw; /* limits.c, raw_hash.c: the bare table, NULL until a limit wants it */
    size_t raw_bytes;
    void *raw_zmq, *raw_shm; /* the bare process at the other end, likewise */
    ReferenceRun *reference_run;
};

/* ---- cases_*.c: ended by one without a name ---- */

extern const BenchCase bench_local_cases[], bench_nodes_cases[], bench_counts_cases[],
    bench_rule_cases[], bench_data_cases[], bench_scale_cases[];

/* Case i of all, NULL after the last. */
const BenchCase *bench_case(size_t i);

/* Values in a row. */
size_t bench_width(const BenchCase *what);

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

/* The key of row i. */
RubatoKey bench_key(const BenchCase *what, uint64_t row);

/* Opens the table, chooses the keys and makes the buffers. The second writes all rows. */
bool bench_open_table(Bench *bench, GError **error);
bool bench_fill(Bench *bench, GError **error);

/* ---- counts.c: each is a `sample` of cases ---- */

bool sample_growth(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_messages(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_row_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_tickets(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_resident(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_key_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_barrier(Bench *bench, size_t n, BenchSample *sample, GError **error);

/* ---- data.c: each is a `sample` of cases, of a file of n rows ---- */

bool sample_parse_libsvm(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_parse_csv(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_read_text(Bench *bench, size_t n, BenchSample *sample, GError **error);
bool sample_read_cache(Bench *bench, size_t n, BenchSample *sample, GError **error);
void data_close(Bench *bench);

/* Bytes of memory that a process has; 0: this one. */
size_t bench_resident_bytes(long pid);

/* ---- limits.c: each is a `run_limit` of cases, as are those that follow ---- */

/* Seconds, monotonic. */
double bench_now(void);

/* The bare rows; each page has been written once, so that it is in memory. */
float *raw_rows(Bench *bench);

/* Keeps the compiler from moving or removing writes to memory. */
static inline void clobber(void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Fresh memory of huge pages for bench->raw, as far as the kernel has them. */
void *raw_allocate(Bench *bench, size_t n_bytes);
void raw_free(Bench *bench);

double limit_locked_load(Bench *bench, size_t n);
double limit_locked_add(Bench *bench, size_t n);
double limit_gather(Bench *bench, size_t n);
double limit_scatter_add(Bench *bench, size_t n);
double limit_gather_scatter(Bench *bench, size_t n);
double limit_gather_rows(Bench *bench, size_t n);
double limit_scatter_add_rows(Bench *bench, size_t n);
double limit_copy_range(Bench *bench, size_t n);
double limit_add_range(Bench *bench, size_t n);
double limit_norm(Bench *bench, size_t n);

/* ---- raw_threads.c: bare threads on bare rows ---- */

/* What iterate_fresh does, by as many threads on as many parts, each part behind a lock that spins.
 * They keep the model's bound on how far one thread may be ahead of another. */
double limit_threads(Bench *bench, size_t n);

/* Seconds of a barrier of so many bare threads. */
double raw_barrier(uint32_t n_threads, size_t n);

/* ---- raw_hash.c: a bare open-addressing table with prefetch ---- */

double limit_hash_get(Bench *bench, size_t n);
double limit_hash_add(Bench *bench, size_t n);

/* ---- raw_zmq.c: a bare DEALER here, a bare ROUTER in a process of its own ---- */

double limit_zmq_round_trip(Bench *bench, size_t n);
double limit_zmq_stream(Bench *bench, size_t n);
double limit_zmq_push(Bench *bench, size_t n);
double limit_zmq_pull(Bench *bench, size_t n);
void raw_zmq_stop(Bench *bench);
int raw_zmq_serve(void); /* what the other process runs */

/* ---- raw_shm.c: memory shared with a process of its own ---- */

double limit_shm_round_trip(Bench *bench, size_t n);
double limit_shm_push(Bench *bench, size_t n);
double limit_shm_pull(Bench *bench, size_t n);
void raw_shm_stop(Bench *bench);
int raw_shm_serve(void); /* what the other process runs */

/* ---- measure.c ---- */

typedef struct {
    unsigned repeat; /* samples */
    bool quick;      /* short ones, of small tables */
} BenchOptions;

typedef struct {
    double min, median, max;
    double p99; /* of single operations, 0 if they were not timed */
} BenchFigures;

typedef struct {
    const BenchCase *what;
    BenchFigures own, limit; /* limit.median 0: there is none */
    double ratio;            /* the medians'; 0 without a limit */
    BenchDetails details;
} BenchResult;

/* Measures one case in an engine of its own. */
bool bench_measure(const BenchCase *what, const BenchOptions *options, BenchResult *result,
                   GError **error);

/* What the process of the other node runs, with the same cluster file. */
int bench_peer(const BenchCase *what, const BenchOptions *options, const char *cluster_file);

/* For the reference run: opens what a case works on, and closes it. */
bool bench_open(Bench *bench, GError **error);
void bench_close(Bench *bench);
RubatoTableSpec bench_table_spec(const BenchCase *what, const BenchOptions *options);
/* Whether the table holds a range of keys, as it does if the case names no storage. */
static inline bool bench_is_dense(const BenchCase *what)
{
    return what->table.storage == NULL || rubato_table_spec_holds_range(&what->table);
}

uint64_t bench_rows(const BenchCase *what, const BenchOptions *options);

/* ---- reference_run.c: the same case in an engine of one process, one worker and one server
 * ---- */

ReferenceRun *reference_run_new(const BenchCase *what, const BenchOptions *options, GError **error);
void reference_run_free(ReferenceRun *reference_run);
double limit_reference_run(Bench *bench, size_t n);

/* The same, its Adds by the rule "add". */
double limit_add_reference_run(Bench *bench, size_t n);

/* Whether a case is measured beside a reference run. */
bool reference_run_is_wanted(const BenchCase *what);

/* ---- nodes.c ---- */

/* Runs a function in node 0 of two, with the process id of the other. */
bool nodes_run(const BenchCase *what, const BenchOptions *options,
               bool (*function)(RubatoEngine *engine, long peer_pid, void *data, GError **error),
               void *data, GError **error);

/* ---- process.c ---- */

enum { PROCESS_MAX_ARGUMENTS = 5 };

typedef struct {
    const char *arguments[PROCESS_MAX_ARGUMENTS]; /* fewer: NULL behind the last */
    int *output;                                  /* not NULL: the pipe that it writes to */
    int shared_fd, as_fd;                         /* as_fd 0: it gets none */
} ProcessStart;

/* Starts this program once more. */
bool process_start(const ProcessStart *start, GPid *process, GError **error);
void process_wait(GPid process);

/* From now on this process dies with the one that started it. */
void process_end_with_parent(void);

/* ---- goal.c ---- */

bool bench_lower_is_better(BenchUnit unit);
bool goal_is_set(const BenchGoal *goal);
bool goal_is_met(const BenchResult *result);

/* "at least 0.6 of the limit". (transfer full) */
char *goal_text(const BenchCase *what);

/* ---- report*.c ---- */

enum { REPORT_NUMBER_BYTES = 32 };

/* "112 ns", "1.11 M": three figures and a prefix; with the unit, "1.11 M keys/s". */
void report_format(BenchUnit unit, double value, char *text);
void report_format_with_unit(BenchUnit unit, double value, char *text);
const char *report_unit(BenchUnit unit);

void report_header(void);
void report_line(const BenchResult *result);

/* "AMD EPYC, 2 processors, Linux 6.1, gcc 12.2, optimised". (transfer full) */
char *report_machine(void);

/* A table for docs/performance.md. */
void report_markdown(const BenchResult *results, size_t n);

/* One object: machine, build, cases. */
bool report_json(const char *path, const BenchResult *results, size_t n, GError **error);

/* The ratios as bars, drawn by gnuplot. */
bool report_plot(const char *path, const BenchResult *results, size_t n, GError **error);

#endif
