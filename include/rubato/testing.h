/* Tests of consistency models, storages and update rules with check: the library librubato-testing,
 * pkg-config `rubato-testing`.
 *
 * rubato_test_model runs random programs of several workers against a model, one seed after the
 * other, and delivers what they send in every order that a cluster allows. What each Get saw is
 * held against the bounds that the test has picked. Each Add leaves its own mark in its row, so a
 * sum tells which Adds are in it. rubato_test_storage and rubato_test_update_rule run random calls
 * against a storage and against a rule, and compare each row with a reference. There are no threads
 * and no time in any of these, so thousands of seeds take a second. rubato_test_cluster runs a
 * function on several engines that talk over a network with faults.
 *
 * A seed that fails is made smaller first: what is not needed for the failure goes. The rest is
 * printed as a story of what was done, and what was seen. The environment variables
 * RUBATO_TEST_SEED (this seed alone) and RUBATO_TEST_SEEDS (so many) go before a test's numbers.
 *
 * Each test has two functions. The one that ends in _story returns the story of the first seed that
 * fails, or NULL if all hold. The other one is for test cases of check, which fail with the story.
 * The first ones need no check.
 *
 * Threads: that of the test case. */
#ifndef RUBATO_TESTING_H
#define RUBATO_TESTING_H

#include <rubato/model_driver.h>
#include <rubato/shard_driver.h>
#include <rubato/wire_faults.h>

G_BEGIN_DECLS

/* ---- models ---- */

/* The keys of the test's table: first_key .. first_key + n_keys - 1. */
#define RUBATO_TEST_FIRST_KEY 1000
#define RUBATO_TEST_N_KEYS 24

/* What a shard has been told so far. */
typedef struct RubatoTestView RubatoTestView;

RUBATO_API uint32_t rubato_test_view_n_workers(const RubatoTestView *view);

/* The clock of a worker as the shard knows it: its own under a model with per_worker_clocks, else
 * its node's. RUBATO_CLOCK_RETIRED: it has retired. */
RUBATO_API uint64_t rubato_test_view_clock(const RubatoTestView *view, uint32_t worker);

/* The lowest of them. */
RUBATO_API uint64_t rubato_test_view_min_clock(const RubatoTestView *view);

/* Whether a worker has told the whole of the keys of an iteration, and whether it has told this
 * key. */
RUBATO_API bool rubato_test_view_has_told(const RubatoTestView *view, uint32_t worker,
                                          uint64_t iteration);
RUBATO_API bool rubato_test_view_uses(const RubatoTestView *view, uint32_t worker,
                                      uint64_t iteration, RubatoKey key);

/* The table's spec. */
RUBATO_API const RubatoTableSpec *rubato_test_view_spec(const RubatoTestView *view);

/* What a model promises of a Get of worker w at clock c. Each is asked if it is set. It is always
 * asked that each request comes back once, that no Add is lost or applied twice, and that every
 * program comes to its end. */
typedef struct {
    /* Answered only while the clock of the slowest live worker is at least c - lead. */
    bool has_lead;
    uint64_t lead;

    /* Sees each Add of a worker that was made at a clock below c - staleness. */
    bool has_staleness;
    uint64_t staleness;

    /* Sees every Add that w made before it. */
    bool sees_own;

    /* Sees exactly the Adds of the clocks below c. So the result of a run depends on nothing but
     * the workers' calls. */
    bool is_exact;

    /* Answered as soon as this holds of what its shard has been told, and not before. NULL: not
     * asked. */
    bool (*is_due)(const RubatoTestView *view, const RubatoRequest *get, void *user);
    void *user;
} RubatoTestBounds;

/* The bounds that the documentation gives the built-in models asp, bsp, ssp and sparse_ssp, by the
 * spec's model, staleness and speculation. Of any other model, what its traits promise. */
RUBATO_API RubatoTestBounds rubato_test_bounds(const RubatoTableSpec *spec);

typedef struct {
    /* model, staleness, speculation, record and storage count; NULL storage: both built-in ones in
     * turn. The rest is the test's. */
    RubatoTableSpec spec;
    RubatoTestBounds bounds;
    uint64_t first_seed;
    uint32_t n_seeds;     /* 0: 1,000 */
    uint32_t max_workers; /* 1 to 8; 0: 8 */
} RubatoModelTest;

/* (transfer full) */
RUBATO_API char *rubato_test_model_story(const RubatoModelTest *test);
RUBATO_API void rubato_test_model(const RubatoModelTest *test);

/* ---- storages ---- */

typedef struct {
    /* storage counts; update, first_key and n_keys where they are set. The rest is the test's. */
    RubatoTableSpec spec;

    /* Of a storage whose rows are all there from the start, and shared by several keys: the key
     * whose row a key uses, of which the initial values are. NULL: each key has a row of its
     * own. */
    RubatoKey (*row_of)(RubatoKey key, void *user);
    void *user;

    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 300 */
} RubatoStorageTest;

/* Random calls of a shard and of the storage's ops, against a reference that keeps the row of each
 * key by itself: rows found, made, read, added to, set, reset, listed and moved to another shard.
 * Keys repeat, and go from 0 to 2^64 - 1. Then there is no memory, in a child process: the calling
 * process must have one thread alone. A sanitizer leaves that out. (transfer full) */
RUBATO_API char *rubato_test_storage_story(const RubatoStorageTest *test);
RUBATO_API void rubato_test_storage(const RubatoStorageTest *test);

/* ---- update rules ---- */

/* A rule's formula, computed for one row in double precision. Gradients have been clipped and
 * decayed before. */
typedef struct {
    /* What the formula keeps of a row: so many numbers for each value, and so many for the row
     * behind them. They are 0 in a new row. */
    uint32_t state_per_value, state_per_row;

    /* Sets what is not 0 in a new row. NULL: everything is. */
    void (*begin)(const RubatoRule *rule, uint32_t width, const double *values, double *state);

    void (*step)(const RubatoRule *rule, uint32_t width, double *values, double *state,
                 const double *deltas);
} RubatoTestFormula;

typedef struct {
    /* update counts, and rule and init_value where they are set. The rest is the test's. */
    RubatoTableSpec spec;

    /* What the rows are compared with, up to rounding. NULL: only with the rule itself. */
    const RubatoTestFormula *formula;

    /* The hyper-parameters of which the formula is told. NULL: those of the table, with its
     * defaults. */
    const RubatoRule *means;

    /* The name of another rule that has to give the same bits: the same loops compiled for other
     * vectors, or without any (RUBATO_PLAIN_LOOPS). NULL: there is none. */
    const char *same_as;

    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 300 */
} RubatoUpdateRuleTest;

/* Random Adds of every dtype that the rule takes, at several widths. Many keys in one call must
 * give the same bits as one call for each key, in any order of other rows; the rule must write
 * nothing but its rows; rows and state that have moved to another shard must go on as before; bad
 * deltas must be counted; and numbers may change on the way. (transfer full) */
RUBATO_API char *rubato_test_update_rule_story(const RubatoUpdateRuleTest *test);
RUBATO_API void rubato_test_update_rule(const RubatoUpdateRuleTest *test);

/* ---- clusters ---- */

typedef struct {
    uint32_t n_nodes;          /* 0: 2; 8 at most. Their ids are 0, 1, … */
    uint32_t servers, workers; /* of each node; 0: 1 */

    /* NULL: drawn from the seed. Their own seed does not count. */
    const RubatoWireFaults *faults;

    /* Runs on each node, on a thread of its own: makes tables, runs tasks, looks at what has come
     * out. Collective calls are the same on every node. */
    bool (*play)(RubatoEngine *engine, void *user, GError **error);
    void *user;

    uint32_t patience_s; /* of a seed; then its tasks are cancelled. 0: 60 */
    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 1 */
} RubatoClusterTest;

/* Runs a function on the nodes of a cluster in this process, which talk over the loopback with
 * faults on the wire. The story is what the failed nodes say. The seed decides the faults; which
 * threads run when does not follow from it, so a seed that has failed may need some runs to fail
 * again. (transfer full) */
RUBATO_API char *rubato_test_cluster_story(const RubatoClusterTest *test);
RUBATO_API void rubato_test_cluster(const RubatoClusterTest *test);

G_END_DECLS

#endif
