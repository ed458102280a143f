/* rubato-bench: each case beside the limit of the machine, measured in the same run.
 *
 * A case has an operation of Rubato and a raw loop that does the least that the operation could
 * do: a mutex around a load, a gather, a bare ZeroMQ round trip. Samples of the two are taken in
 * turn, so that both see the same machine.
 *
 *   cases/    what is measured, each with its goal
 *   samples/  what the cases do with Rubato, and samples of what is not a time
 *   limits/   what they are measured beside
 *   run/      taking the samples; with a second process
 *   report/   what comes out, and whether the goals are met
 *
 * Threads: a case runs on the worker of rank 0; other workers of its task run beside it. */
#ifndef RUBATO_APPS_BENCH_BENCH_H
#define RUBATO_APPS_BENCH_BENCH_H

#include <rubato/rubato.h>

typedef struct Bench Bench;

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
    BENCH_PLACE_UCX,
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
    double share;  /* of BenchCase.beside, or what the limit reaches of its own, if that is less */
} BenchGoal;

/* One sample of a case and of its limit, in the case's unit. A limit of 0: there is none. */
typedef struct {
    double own, limit;
} BenchSample;

typedef struct {
    const char *name;
    const char *what;   /* the operation, in a few words */
    const char *limit;  /* what it is measured beside */
    const char *beside; /* an earlier case, with fewer workers or servers; or NULL */
    BenchGoal goal;
    BenchUnit unit;

    BenchPlace place;
    uint32_t workers, servers; /* of a node; 0: one */
    BenchKeys keys;            /* of a request */
    uint32_t nodes;            /* not in one process; 0: two */
    bool mixed;                /* all nodes have the workers and the servers */
    bool starts_tasks;         /* empty tasks are run before it, and timed */
    bool on_demand;            /* it runs only if --case names it */
    bool drains;               /* a sample drains node 1, so each has nodes of its own */
    bool replaces;             /* lost workers are to be replaced: RUBATO_ON_LOSS_REPLACE */
    bool starts_empty;         /* otherwise each row was written before the first sample */
    bool has_plain;            /* a table BENCH_PLAIN_TABLE is there, too, which admits all keys */
    RubatoTableSpec table;     /* its n_keys is left 0: */
    uint64_t n_rows;           /* keys 0 .. n_rows - 1; of hash storage, as many scattered ones */
    size_t n_keys;             /* of a request */
    size_t tensor_bytes;       /* of a collective */
    size_t n_tensors;          /* of a group of them */
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

/* In a case of which all nodes have workers: a row of four numbers for each node. */
#define BENCH_SENT_TABLE "sent"

/* The table of a case without its admission, with as many bytes for rows. */
#define BENCH_PLAIN_TABLE "plain"

enum { BENCH_MAX_DETAILS = 8 };

typedef struct {
    BenchDetail at[BENCH_MAX_DETAILS];
    unsigned n_samples[BENCH_MAX_DETAILS]; /* of which the value is the mean, if it is one */
    size_t n;
} BenchDetails;

/* Notes a detail, at place i: of all samples the most, or their mean. name: stays. */
void bench_note_most(BenchDetails *details, size_t i, const char *name, double value);
void bench_note_mean(BenchDetails *details, size_t i, const char *name, double value);

/* How a case began. All 0 with a single process. */
typedef struct {
    long peer_pid;       /* the process of node 1 */
    double seconds;      /* until all processes were started and had met */
    double task_seconds; /* of an empty task, if the case starts tasks */
} BenchStart;

/* What a case works on, made before the first sample. */
struct Bench {
    const BenchCase *what;
    uint64_t n_rows; /* what->n_rows, or fewer with --quick */
    RubatoEngine *engine;
    RubatoWorker *worker;
    RubatoKVTable *table;
    RubatoSparseKVClientTable *sparse; /* under a model that takes announcements; else NULL */
    RubatoRaggedTable *ragged;         /* in place of `table` if rows have any length; else NULL */
    uint32_t *lengths;                 /* then: of a request's rows */
    RubatoKey *keys;   /* what->n_keys of the table's, chosen as what->keys says; n_sets times */
    uint64_t turn;     /* how many sets have had theirs */
    float *values;     /* what->n_keys rows of bench_width() */
    double *latencies; /* of each operation of a sample, seconds; NULL if nobody asks */

    uint64_t next_row;      /* of a table that grows */
    size_t resident_before; /* bytes of the process before the table was there */
    BenchStart start;
    BenchDetails *details;

    char *data_path; /* samples/data.c: the file that is read; NULL until a sample wants it */

    void *raw; /* limits/memory.c, hash.c: the bare table, NULL until a limit wants it */
    size_t raw_bytes;
    void *raw_zmq, *raw_shm, *raw_tcp; /* the bare process at the other end, likewise */
};

/* ---- cases/: ended by one without a name ---- */

extern const BenchCase bench_local_cases[], bench_nodes_cases[], bench_counts_cases[],
    bench_rule_cases[], bench_forget_cases[], bench_data_cases[], bench_scale_cases[],
    bench_mixed_cases[], bench_collective_cases[], bench_replica_cases[], bench_many_nodes_cases[];

/* Case i of all, NULL after the last. */
const BenchCase *bench_case(size_t i);

/* Values in a row; of rows of any length, the most. */
size_t bench_width(const BenchCase *what);

/* ---- samples/operations.c: what a case works on ---- */

/* The key of row i. */
RubatoKey bench_key(const BenchCase *what, uint64_t row);

/* The keys of the next operation: the sets take turns. */
const RubatoKey *bench_next_keys(Bench *bench);

/* Opens the table, chooses the keys and makes the buffers. The second writes all rows. */
bool bench_open_table(Bench *bench, GError **error);
bool bench_fill(Bench *bench, GError **error);

/* ---- samples/ragged.c: rows of any length ---- */

#define BENCH_RAGGED_MOST_LENGTH 63u

bool bench_is_ragged(const BenchCase *what);

/* The values of a row: 1 to BENCH_RAGGED_MOST_LENGTH, 32 in the mean. */
uint32_t bench_ragged_length(uint64_t row);

/* For bench_open_table and bench_fill. */
bool bench_open_ragged(Bench *bench, GError **error);
bool bench_fill_ragged(Bench *bench, const float *values, size_t n_values, GError **error);

/* ---- samples/counts.c ---- */

/* Bytes of memory that a process has; 0: this one. */
size_t bench_resident_bytes(long pid);

/* ---- run/measure.c ---- */

/* Seconds, monotonic. */
double bench_now(void);

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
    BenchSample share;       /* the medians by those of what->beside; 0: it is not in this run */
    BenchDetails details;
} BenchResult;

/* Measures one case in an engine of its own. */
bool bench_measure(const BenchCase *what, const BenchOptions *options, BenchResult *result,
                   GError **error);

/* What the process of another node runs, with the same cluster file. */
int bench_peer(const BenchCase *what, const BenchOptions *options, const char *cluster_file,
               uint32_t node);

/* Whether the table holds a range of keys, as it does if the case names no storage. */
static inline bool bench_is_dense(const BenchCase *what)
{
    return what->table.storage == NULL || rubato_table_spec_holds_range(&what->table);
}

#endif
