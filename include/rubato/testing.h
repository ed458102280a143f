/* Tests of consistency models, storages and update rules with check: the library librubato-testing,
 * pkg-config `rubato-testing`.
 *
 * rubato_test_model runs random programs of several workers against a model, one seed after the
 * other. It delivers what they send in orders drawn from all those that a cluster allows, and
 * checks what each Get saw against the bounds of the test. Each Add leaves its own mark in its row,
 * so a sum tells which Adds are in it. rubato_test_storage and rubato_test_update_rule make random
 * calls to a storage and to a rule, and compare each row with a reference. None of these uses
 * threads or waits, so thousands of seeds take a second. rubato_test_cluster runs a function on
 * several engines that talk over a network with faults.
 *
 * A seed that fails is made smaller first: what is not needed for the failure is removed. The rest
 * is printed as a story: what was done, and what was seen. Two environment variables replace a
 * test's own numbers: RUBATO_TEST_SEED runs only this seed, RUBATO_TEST_SEEDS runs this many.
 *
 * Each test has two functions. The one that ends in _story returns the story of the first seed that
 * fails, or NULL if all hold; it does not need check. The other one is for test cases of check,
 * which fail with the story.
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

/* Whether a worker has told all keys of an iteration, and whether it has told this key. */
RUBATO_API bool rubato_test_view_has_told(const RubatoTestView *view, uint32_t worker,
                                          uint64_t iteration);
RUBATO_API bool rubato_test_view_uses(const RubatoTestView *view, uint32_t worker,
                                      uint64_t iteration, RubatoKey key);

/* The table's spec. */
RUBATO_API const RubatoTableSpec *rubato_test_view_spec(const RubatoTestView *view);

/* What a model promises about a Get of worker w at clock c. A bound is checked if it is set. The
 * test always checks that each request comes back once, that no Add is lost or applied twice, and
 * that every program ends. */
typedef struct {
    /* The Get is answered only while the clock of the slowest live worker is at least c - lead. */
    bool has_lead;
    uint64_t lead;

    /* The Get sees each Add that any worker made at a clock below c - staleness. */
    bool has_staleness;
    uint64_t staleness;

    /* The Get sees every Add that w made before it. */
    bool sees_own;

    /* The Get sees exactly the Adds of the clocks below c. So the result of a run depends only on
     * the workers' calls. */
    bool is_exact;

    /* The Get is answered as soon as this returns true for what its shard has been told, and not
     * before. NULL: not checked. */
    bool (*is_due)(const RubatoTestView *view, const RubatoRequest *get, void *user);
    void *user;
} RubatoTestBounds;

/* The bounds of the spec's model, with its staleness and speculation. For the built-in models asp,
 * bsp, ssp and sparse_ssp they are those of the documentation, for any other model what its traits
 * promise. */
RUBATO_API RubatoTestBounds rubato_test_bounds(const RubatoTableSpec *spec);

typedef struct {
    /* The test uses model, staleness, speculation, record and storage, and sets the rest itself. If
     * storage is NULL, it uses both built-in storages in turn. */
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
    /* The test uses storage, and update, first_key and n_keys if they are set. It sets the rest
     * itself. */
    RubatoTableSpec spec;

    /* For a storage in which several keys share a row, and all rows exist from the start. Returns
     * the key whose row a key uses; the row has the initial values of that key. NULL: each key has
     * a row of its own. */
    RubatoKey (*row_of)(RubatoKey key, void *user);
    void *user;

    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 300 */
} RubatoStorageTest;

/* Makes random calls of a shard and of the storage's ops, and compares them with a reference that
 * keeps the row of each key by itself. Rows are found, made, read, added to, set, reset, listed and
 * moved to another shard. Keys repeat, and go from 0 to 2^64 - 1. Then a child process runs out of
 * memory; for this the calling process must have only one thread. Builds with a sanitizer leave
 * this out. (transfer full) */
RUBATO_API char *rubato_test_storage_story(const RubatoStorageTest *test);
RUBATO_API void rubato_test_storage(const RubatoStorageTest *test);

/* ---- update rules ---- */

/* A rule's formula, computed for one row in double precision. The gradients that it gets have been
 * clipped, and weight decay has been added. */
typedef struct {
    /* How many numbers the formula keeps for each value of a row, and how many for the whole row.
     * The latter follow the former. All are 0 in a new row. */
    uint32_t state_per_value, state_per_row;

    /* Sets the numbers that are not 0 in a new row. NULL: all are 0. */
    void (*begin)(const RubatoRule *rule, uint32_t width, const double *values, double *state);

    void (*step)(const RubatoRule *rule, uint32_t width, double *values, double *state,
                 const double *deltas);
} RubatoTestFormula;

typedef struct {
    /* The test uses update, and rule and init_value if they are set. It sets the rest itself. */
    RubatoTableSpec spec;

    /* What the rows are compared with, up to rounding. NULL: only with the rule itself. */
    const RubatoTestFormula *formula;

    /* The hyper-parameters that the formula gets. NULL: those of the table, with its defaults. */
    const RubatoRule *means;

    /* The name of another rule that has to give the same bits: the same loops compiled for other
     * vectors, or for none (RUBATO_PLAIN_LOOPS). NULL: there is none. */
    const char *same_as;

    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 300 */
} RubatoUpdateRuleTest;

/* Makes random Adds of every dtype that the rule takes, at several widths. Hyper-parameters may
 * change between them. Many keys in one call must give the same bits as one call for each key, in
 * any order of other rows. The rule must write to its rows only. Rows and state that have moved to
 * another shard must go on as before. Bad deltas must be counted. (transfer full) */
RUBATO_API char *rubato_test_update_rule_story(const RubatoUpdateRuleTest *test);
RUBATO_API void rubato_test_update_rule(const RubatoUpdateRuleTest *test);

/* ---- clusters ---- */

typedef struct {
    uint32_t n_nodes;          /* 0: 2; 8 at most. Their ids are 0, 1, … */
    uint32_t servers, workers; /* of each node; 0: 1 */

    /* NULL: drawn from the seed. The seed in them is not used. */
    const RubatoWireFaults *faults;

    /* Runs on each node, on a thread of its own: makes tables, runs tasks, checks the results.
     * False with an error if something is wrong. Every node must make the same collective calls. */
    bool (*play)(RubatoEngine *engine, void *user, GError **error);
    void *user;

    uint32_t patience_s; /* seconds that a seed may take; then its tasks are cancelled. 0: 60 */
    uint64_t first_seed;
    uint32_t n_seeds; /* 0: 1 */
} RubatoClusterTest;

/* Runs a function on the nodes of a cluster in this process, which talk over the loopback with
 * faults on the wire. The story has the errors of the nodes that failed. The seed decides the
 * faults, but not which thread runs when. So a seed that has failed may need several runs to fail
 * again. (transfer full) */
RUBATO_API char *rubato_test_cluster_story(const RubatoClusterTest *test);
RUBATO_API void rubato_test_cluster(const RubatoClusterTest *test);

G_END_DECLS

#endif
