/* Tests of consistency models with check: the library librubato-testing, pkg-config
 * `rubato-testing`.
 *
 * rubato_test_model runs random programs of several workers against a model, one seed after the
 * other, and delivers what they send in every order that a cluster allows. What each Get saw is
 * held against the bounds that the test has picked. Each Add leaves its own mark in its row, so a
 * sum tells which Adds are in it. There are no threads and no time in it, so thousands of seeds
 * take a second.
 *
 * A seed that fails is made smaller first: what is not needed for the failure goes. The rest is
 * printed as a story of what each worker did, what each shard took, and what was seen.
 *
 * Threads: that of the test case. */
#ifndef RUBATO_TESTING_H
#define RUBATO_TESTING_H

#include <rubato/model_driver.h>

G_BEGIN_DECLS

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
 * spec's model, staleness and speculation. */
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

/* Runs the seeds. NULL if all bounds hold; else the story of the first that fails, as small as it
 * could be made. The environment variables RUBATO_TEST_SEED (this seed alone) and RUBATO_TEST_SEEDS
 * (so many) go before the test's numbers. (transfer full) */
RUBATO_API char *rubato_test_model_story(const RubatoModelTest *test);

/* The same in a check test case, which fails with the story. */
RUBATO_API void rubato_test_model(const RubatoModelTest *test);

G_END_DECLS

#endif
