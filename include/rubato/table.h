/* What a table is: its name, shape, storage, consistency model and update rule.
 *
 * A spec is plain data that the caller owns; the engine copies what it keeps. A field left 0 or
 * NULL has the default that its comment gives. A field that has no effect, such as a staleness
 * under "bsp", is refused with RUBATO_ERROR_INVALID; the message says what the field needs. Only a
 * seed is always allowed.
 *
 * Threads: any. */
#ifndef RUBATO_TABLE_H
#define RUBATO_TABLE_H

#include <rubato/types.h>

G_BEGIN_DECLS

/* Which rows a cached RubatoKVTable may serve from its node's process cache (under "ssp" only). */
typedef enum {
    RUBATO_CACHE_REMOTE, /* rows that live on other nodes */
    RUBATO_CACHE_ALL,    /* rows of this node's servers too */
    RUBATO_CACHE_NONE,
} RubatoCache;

/* How long rows are. */
typedef enum {
    RUBATO_SHAPE_EVEN,   /* `width` values each */
    RUBATO_SHAPE_RAGGED, /* any number of values each: rubato/ragged_table.h */
} RubatoShape;

/* What happens to a bad delta. A delta is bad if it is not a number, is infinite, or is beyond the
 * rule's max_gradient. rubato_engine_bad_gradients gives the counts, by table and worker. */
typedef enum {
    RUBATO_ON_BAD_GRADIENT_DEFAULT,   /* _COUNT for the gradient rules, _UNCHECKED for the others */
    RUBATO_ON_BAD_GRADIENT_COUNT,     /* it is counted and applied all the same */
    RUBATO_ON_BAD_GRADIENT_REFUSE,    /* it is counted, and its row of the Add is left out */
    RUBATO_ON_BAD_GRADIENT_UNCHECKED, /* it is applied; bad deltas are not looked for */
} RubatoOnBadGradient;

/* What happens to the Adds of a clock under "bsp" when the min clock passes it. */
typedef enum {
    RUBATO_AGGREGATE_NONE, /* each is applied, in worker order */
    RUBATO_AGGREGATE_SUM,  /* those of a key are summed in worker order; the sum is applied once */
    RUBATO_AGGREGATE_MEAN, /* the same, but the sum is divided by how many workers added to it */
} RubatoAggregate;

/* The hyper-parameters of an update rule. The comment of each names the rules that have it, and
 * their defaults. One that the table's rule does not have must stay 0. "The gradient rules" are
 * "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam" and "ftrl".
 *
 * 0 means the default. Where that is not 0, RUBATO_ZERO means the number 0. */
typedef struct {
    double learning_rate; /* the gradient rules: 0.01; "adam": 0.001; "ftrl" (its alpha): 0.1 */
    double momentum;      /* "momentum", "nesterov": 0.9 */
    double beta1, beta2;  /* "adam": 0.9 and 0.999 */
    double decay;         /* "rmsprop": 0.9; "moving_average": 0.99 */
    double epsilon;       /* "adagrad", "rmsprop", "adam": 1e-8 */
    double beta;          /* "ftrl": 1 */
    double l1, l2;        /* "ftrl": 0 */

    /* The gradient rules, in this order; 0: none. First each gradient is clipped to ±clip_value.
     * Then, if the norm of a row's gradients is above clip_norm, they are scaled down to it. Then
     * weight_decay × value is added to each (L2). */
    double clip_value, clip_norm, weight_decay;

    /* "adagrad": what the sums of squares of a row begin with: 0. */
    double initial_accumulator;

    double max_gradient; /* a delta beyond ±max_gradient is bad; 0: any finite one is good */
    RubatoOnBadGradient on_bad_gradient;

    /* "adagrad", "adam": a row has one accumulator of squares, not one for each value. It takes the
     * mean of the squares of the row's gradients. */
    bool row_wise;
} RubatoRule;

/* The number 0, in a member of RubatoRule where 0 means another default. (It is the negative
 * zero.) */
#define RUBATO_ZERO (-0.0)

/* The numbers of a RubatoRule: what rubato_worker_tune and rubato_engine_tune change. */
typedef enum {
    RUBATO_HYPER_LEARNING_RATE,
    RUBATO_HYPER_MOMENTUM,
    RUBATO_HYPER_BETA1,
    RUBATO_HYPER_BETA2,
    RUBATO_HYPER_DECAY,
    RUBATO_HYPER_EPSILON,
    RUBATO_HYPER_BETA,
    RUBATO_HYPER_L1,
    RUBATO_HYPER_L2,
    RUBATO_HYPER_CLIP_VALUE,
    RUBATO_HYPER_CLIP_NORM,
    RUBATO_HYPER_WEIGHT_DECAY,
    RUBATO_HYPER_INITIAL_ACCUMULATOR, /* of the rows made from then on */
    RUBATO_HYPER_MAX_GRADIENT,
} RubatoHyper;

/* How many clocks a worker's Gets may be ahead of the slowest worker's. */
typedef enum {
    RUBATO_LEAD_NONE,      /* none */
    RUBATO_LEAD_STALENESS, /* the table's staleness */
    RUBATO_LEAD_UNBOUNDED, /* any number */
} RubatoLead;

/* What is special about a consistency model. A model for which all members are left out works too,
 * but perhaps more slowly. */
typedef struct {
    RubatoLead lead;

    /* The sources of clocks. False: they are the nodes, each with the clock of its slowest worker.
     * True: they are the workers, one by one. */
    bool per_worker_clocks;

    /* The model needs clocks for Gets only. It answers a Get at once if the min clock is at least
     * the Get's clock minus the lead. Then the Gets of a single node carry its clock, and a clock
     * message is sent only while a Get waits. With applies_by_clock the Adds of a single node come
     * as late as the clock, or right behind it, in the order of clocks and workers. A message is
     * then sent also if much is kept, and at the end. Not with per_worker_clocks. */
    bool lazy_clocks;

    /* A node may cache rows. A row that was read at a min clock serves every worker whose clock is
     * at most that min clock plus the lead. */
    bool rows_may_be_cached;

    /* The Adds of a clock are applied together once the min clock passes it, so they may be
     * aggregated first (RubatoTableSpec.aggregate). */
    bool applies_by_clock;

    /* Workers announce their keys ahead of time; the table's speculation and record have a
     * meaning. */
    bool takes_announcements;
} RubatoModelTraits;

/* What a table needs of all servers together, for its placement. 0: nothing that is known. */
typedef struct {
    uint64_t memory_bytes;  /* once it has all its rows. Not of storages that tell it themselves:
                             * "dense" with rows of one length, "hash" with max_bytes */
    uint64_t network_bytes; /* a second */
    uint64_t queries;       /* Gets, Adds and other requests a second */
} RubatoNeeds;

typedef struct {
    const char *name;  /* unique in the engine */
    RubatoDtype dtype; /* RUBATO_F32 */
    uint32_t width;    /* values in a row; 0 means 1 */
    RubatoShape shape;

    /* Storage: "dense" holds the keys first_key .. first_key + n_keys - 1, "hash" any 64-bit key.
     * NULL means "dense" if n_keys is given, else "hash". */
    const char *storage;
    RubatoKey first_key;
    uint64_t n_keys;
    bool create_on_get; /* hash: a Get of an absent key creates its row */

    /* hash, rows of one length: how many bytes a server may spend on the table; 0: any number. Its
     * parts there have equal shares. Where a new row would exceed the share, another row is
     * evicted, and reads its initial values again. `evict` says which: "lru" (the default) the one
     * whose last write is longest ago, "lfu" the one with the fewest writes of late, "score" (with
     * `expire` = "score") the one with the lowest score. */
    uint64_t max_bytes;
    const char *evict;

    /* hash, rows of one length: which absent keys an Add gives rows to; NULL: all. A key without a
     * row reads the initial values, and an Add to it is dropped and counted. A Set makes its rows
     * in any case.
     *
     * "probability": each Add makes the row with admit_probability. "count": the admit_count-th Add
     * to the key does. Adds are counted in a sketch of admit_bytes a server, 1 MiB by default: take
     * four counters for each different key, and more for fewer rows made too early. A counter has
     * one bit for an admit_count of 2, two bits up to 4, four up to 16, and eight above. After each
     * admit_halve_after counted Adds to a server it halves all counts, so that keys of long ago are
     * forgotten; 0: never. "list": the n_admit_keys of admit_keys have rows, and no others. */
    const char *admit;
    double admit_probability;
    uint32_t admit_count;
    uint64_t admit_bytes;
    uint64_t admit_halve_after;
    const RubatoKey *admit_keys;
    size_t n_admit_keys;

    /* hash, rows of one length: when rows expire; NULL: never. An expired row reads its initial
     * values; servers remove it while a task uses the table. A row's age is the time since its last
     * write.
     *
     * "clocks": at an age of expire_after clocks of the slowest worker. "seconds": at an age of
     * expire_after seconds. "score": the first two values of a row count shows and clicks. Each
     * clock leaves the share expire_decay of them (0.98 by default). A row expires when its score,
     * expire_show_weight (0.1) × (shows - clicks) + expire_click_weight (1) × clicks, is below
     * expire_below. Of these numbers RUBATO_ZERO is 0, and 0 the default. */
    const char *expire;
    uint32_t expire_after;
    double expire_below;
    double expire_decay;
    double expire_show_weight, expire_click_weight;

    /* Consistency: "asp" (the default), "bsp", "ssp" or "sparse_ssp". */
    const char *model;
    uint32_t staleness;   /* ssp, sparse_ssp: clocks that a reader may be ahead of the slowest */
    uint32_t speculation; /* sparse_ssp: further clocks, if no slower worker uses its keys */
    const char *record;   /* sparse_ssp: notes who uses which key: "hash" (the default), "dense" */

    /* bsp: how much memory a worker's Adds of earlier clocks may take until they are applied. While
     * they take more, the worker's next Add waits for the slowest worker. 0 means 64 MiB. */
    uint64_t max_kept_bytes;

    /* What an Add does to a row: "add" (the default) or "assign"; with gradients "sgd", "momentum",
     * "nesterov", "adagrad", "rmsprop", "adam" or "ftrl"; with observations "moving_average". All
     * but the first two are for f32 and f64. */
    const char *update;
    RubatoRule rule;
    RubatoAggregate aggregate; /* bsp; f32 and f64 */

    /* The values of a row before its first write: "constant" (the default) is init_value, "uniform"
     * lies in [init_low, init_high), "normal" has init_mean and init_stddev. "zero_normal" is like
     * "normal", but the first value of a row is 0, or with init_zero_every = n the values 0, n, 2n
     * and so on. Each value depends on seed, key and column alone, and not on the number of
     * servers. */
    const char *init;
    double init_value;
    double init_low, init_high;
    double init_mean, init_stddev;
    uint32_t init_zero_every; /* "zero_normal"; 0: the first alone */
    uint64_t seed;

    uint32_t chunk_size; /* RubatoChunkTable: keys in a chunk; 0 means 1 */

    /* How many parts the table's keys are cut into. A part lies on one server and can move to
     * another one. 0 means one part for each server thread; 4096 at most. At first they lie where
     * the cluster file's placement puts them: part i on server i modulo the number of servers,
     * unless it says otherwise. */
    uint32_t parts;

    RubatoNeeds needs;
    bool no_split; /* all parts lie on one server, and `parts` is 1 by default */

    /* Which part holds a key: "range" (even ranges, the default of "dense"), "hash" (the default
     * of "hash") or "bounds". With "bounds", part i holds the keys below bounds[i] that no earlier
     * part holds, and the last part holds the rest; n_bounds is the number of parts minus one. */
    const char *partition;
    const RubatoKey *bounds;
    size_t n_bounds;

    RubatoCache cache;

    /* How many copies of each part servers of other nodes keep; 7 at most. If a node without
     * workers is lost, copies take the places of its parts, and the run goes on: no Add is lost. A
     * part and its copies need servers on replicas + 1 nodes. */
    uint32_t replicas;
} RubatoTableSpec;

/* What is special about the model of that name ("asp" for NULL); NULL if there is none. The
 * traits are constant; do not free them. Any thread. */
RUBATO_API const RubatoModelTraits *rubato_model_traits(const char *model);

/* Whether the storage of such a table holds a range of keys, first_key .. first_key + n_keys - 1,
 * as "dense" does. False: it holds any keys. Any thread. */
RUBATO_API bool rubato_table_spec_holds_range(const RubatoTableSpec *spec);

G_END_DECLS

#endif
