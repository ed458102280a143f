/* Snapshots of tables that do not admit all keys: what decides which keys have rows comes back. So
 * a run that goes on from a snapshot makes the rows that it would have made, at the same Adds; on
 * other parts, none later. */
#include <check.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 60, N_STEPS = 5, N_WORKERS = 3, COUNT = 8 };

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-admission-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static void take(RubatoEngine *engine, uint32_t full_every)
{
    const RubatoSnapshotSpec spec = { .directory = directory, .full_every = full_every };

    MUST(rubato_engine_snapshot(engine, &spec, NULL, &error));
}

static void restore(RubatoEngine *engine)
{
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
}

static RubatoTableStats stats_of(RubatoEngine *engine)
{
    RubatoTableStats stats;

    MUST(rubato_engine_table_stats(engine, "w", &stats, &error));
    return stats;
}

/* ---- the same bits ---- */

/* Sketches so small that which keys share counters shows: a seed of its own decides that. */
static const RubatoTableSpec learnt[] = {
    { .admit = "count", .admit_count = COUNT, .admit_bytes = 256 },
    { .admit = "count", .admit_count = 3, .admit_bytes = 256, .admit_halve_after = 40 },
    { .admit = "probability", .admit_probability = 0.1 },
};

static RubatoEngine *learner(const RubatoTableSpec *admission)
{
    RubatoEngine *engine = engine_with_servers(2);
    RubatoTableSpec spec = *admission;

    spec.name = "w";
    spec.storage = "hash";
    spec.model = "bsp";
    spec.update = "adagrad";
    spec.parts = 3;
    create_table(engine, &spec);
    return engine;
}

typedef struct {
    uint32_t begin, end;
    uint32_t snapshot_at; /* 0: none */
} Steps;

/* Each worker adds to some of the keys in a step. */
static bool learn(RubatoWorker *worker, void *user_data, GError **error)
{
    const Steps *const steps = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoKey keys[N_KEYS], some[N_KEYS];
    float seen[N_KEYS], gradients[N_KEYS];

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "w", RUBATO_F32, error);
    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = 1000 + 17 * i;
    for (uint32_t step = steps->begin; step < steps->end; step++) {
        size_t n = 0;

        TRY(rubato_kv_table_get(table, keys, N_KEYS, seen, error));
        if (step == steps->snapshot_at && rank == 0 && step > 0)
            TRY(rubato_worker_snapshot(
                worker, &(RubatoSnapshotSpec){ .directory = directory, .full_every = 2 }, NULL,
                error));
        for (size_t i = 0; i < N_KEYS; i++)
            if ((i + 3 * step + rank) % 7 < 2) {
                some[n] = keys[i];
                gradients[n++] = seen[i] - (float)(rank + 1 + i) / (float)(step + 3);
            }
        TRY(rubato_kv_table_add(table, some, n, gradients, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

/* From inside the task, and between two. */
START_TEST(run_that_resumes_makes_the_same_rows_with_the_same_bits)
{
    const RubatoTableSpec *const admission = &learnt[_i / 2];
    const bool is_inside = _i % 2 == 0;
    g_autoptr(RubatoEngine) first = learner(admission);
    g_autoptr(RubatoEngine) second = learner(admission);
    RubatoKey keys[N_KEYS];
    float expected[N_KEYS], resumed[N_KEYS];

    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = 1000 + 17 * i;
    if (is_inside) {
        run_ok(first, N_WORKERS, learn, &(Steps){ 0, 2 * N_STEPS, N_STEPS }, "w");
    } else {
        run_ok(first, N_WORKERS, learn, &(Steps){ 0, N_STEPS, 0 }, "w");
        take(first, /* full_every= */ 0);
        run_ok(first, N_WORKERS, learn, &(Steps){ N_STEPS, 2 * N_STEPS, 0 }, "w");
    }
    MUST(rubato_engine_get(first, "w", keys, N_KEYS, expected, &error));
    restore(second);
    ck_assert_uint_lt(stats_of(second).n_rows, stats_of(first).n_rows);
    run_ok(second, N_WORKERS, learn, &(Steps){ N_STEPS, 2 * N_STEPS, 0 }, "w");
    MUST(rubato_engine_get(second, "w", keys, N_KEYS, resumed, &error));
    ck_assert_mem_eq(expected, resumed, sizeof expected);
    ck_assert_uint_eq(stats_of(second).n_rows, stats_of(first).n_rows);
    ck_assert_uint_eq(stats_of(second).n_admitted, stats_of(first).n_admitted);
    ck_assert_uint_eq(stats_of(second).n_refused, stats_of(first).n_refused);
}
END_TEST

/* ---- other parts ---- */

static RubatoEngine *counter(uint32_t servers, uint32_t parts, const char *partition)
{
    RubatoEngine *engine = engine_with_servers(servers);

    create_table(engine, &(RubatoTableSpec){ .name = "w",
                                             .storage = "hash",
                                             .admit = "count",
                                             .admit_count = 3,
                                             .parts = parts,
                                             .partition = partition });
    return engine;
}

/* Adds once to n keys. */
static void add_to(RubatoEngine *engine, size_t n)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree float *ones = g_new(float, n);

    for (size_t i = 0; i < n; i++) {
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
        ones[i] = 1;
    }
    MUST(rubato_engine_add(engine, "w", keys, n, ones, &error));
}

static const struct {
    uint32_t servers, parts;
    const char *partition;
} places[] = { { 2, 5, "hash" }, { 3, 7, "hash" }, { 1, 1, "hash" }, { 3, 5, "range" } };

/* Of 100 keys half were added to twice. The third Add makes their rows, and no others: the sketch
 * is so large for them that keys share all counters in one of some 30,000 runs. */
START_TEST(counts_come_back_on_other_parts)
{
    g_autoptr(RubatoEngine) first = counter(2, 5, "hash");
    g_autoptr(RubatoEngine) second =
        counter(places[_i].servers, places[_i].parts, places[_i].partition);

    add_to(first, 100);
    add_to(first, 50);
    take(first, /* full_every= */ 0);
    restore(second);
    ck_assert_uint_eq(stats_of(second).n_refused, 150);
    add_to(second, 100);
    ck_assert_uint_eq(stats_of(second).n_rows, 50);
    add_to(second, 100);
    ck_assert_uint_eq(stats_of(second).n_rows, 100);
}
END_TEST

/* What a table has counted before it is restored does not count. */
START_TEST(counts_before_a_restore_are_forgotten)
{
    g_autoptr(RubatoEngine) first = counter(2, 5, "hash");
    g_autoptr(RubatoEngine) second = counter(1, 5, "hash");

    add_to(first, 10);
    take(first, /* full_every= */ 0);
    add_to(second, 50);
    restore(second);
    ck_assert_uint_eq(stats_of(second).n_refused, 10);
    add_to(second, 50);
    add_to(second, 50);
    ck_assert_uint_eq(stats_of(second).n_rows, 10);
}
END_TEST

/* Each snapshot of a chain has all counts; so has the one that is made of the chain. */
START_TEST(snapshots_of_changes_have_all_counts)
{
    g_autoptr(RubatoEngine) first = counter(2, 5, "hash");
    g_autoptr(RubatoEngine) second = counter(2, 5, "hash");

    add_to(first, 100);
    take(first, /* full_every= */ 5);
    add_to(first, 50);
    take(first, /* full_every= */ 5);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    ck_assert_uint_eq(rubato_snapshot_base(snapshot), 1);
    ck_assert_str_eq(rubato_snapshot_table(snapshot, 0)->admit, "count");
    if (_i == 1)
        MUST(rubato_snapshot_compact(directory, 1, NULL, &error));
    restore(second);
    add_to(second, 100);
    ck_assert_uint_eq(stats_of(second).n_rows, 50);
}
END_TEST

/* They mean nothing to another admission. */
START_TEST(table_with_another_admission_begins_anew_and_says_so)
{
    g_autoptr(RubatoEngine) first = counter(1, 2, "hash");
    g_autoptr(RubatoEngine) second = engine_with_servers(1);

    create_table(second, &(RubatoTableSpec){ .name = "w",
                                             .storage = "hash",
                                             .admit = "probability",
                                             .admit_probability = 0.5 });
    for (int i = 0; i < 3; i++)
        add_to(first, 10);
    take(first, /* full_every= */ 0);
    log_capture_start();
    restore(second);
    g_free(log_capture_wait("is not restored", "\"count\""));
    ck_assert_uint_eq(stats_of(second).n_rows, 10);
    ck_assert_uint_eq(stats_of(second).n_refused, 0);
}
END_TEST

/* One of the program's own, with a word for each table. */
typedef struct {
    RubatoAdmission base;
    uint64_t word;
} OwnAdmission;

static RubatoAdmission *create_own(const RubatoAdmissionSetup *setup, GError **error)
{
    OwnAdmission *const own = g_new0(OwnAdmission, 1);

    (void)setup;
    (void)error;
    return &own->base;
}

static void destroy_own(RubatoAdmission *admission)
{
    g_free(admission);
}

static bool admits_own(RubatoAdmission *admission, RubatoKey key)
{
    (void)key;
    return ((OwnAdmission *)admission)->word++ % 2 == 0;
}

static uint64_t *memory_of_own(RubatoAdmission *admission, size_t *n_words)
{
    *n_words = 1;
    return &((OwnAdmission *)admission)->word;
}

static RubatoEngine *owner(uint32_t parts)
{
    RubatoEngine *const engine = engine_with_servers(1);

    create_table(engine, &(RubatoTableSpec){
                             .name = "w", .storage = "hash", .admit = "own", .parts = parts });
    return engine;
}

/* Nobody else knows what its words mean. */
START_TEST(registered_admission_begins_anew_on_other_parts_and_says_so)
{
    static const RubatoAdmissionOps own = { .name = "own",
                                            .create = create_own,
                                            .destroy = destroy_own,
                                            .admits = admits_own,
                                            .memory = memory_of_own };
    MUST(rubato_register_admission(&own, &error));

    g_autoptr(RubatoEngine) first = owner(1);
    g_autoptr(RubatoEngine) second = owner(1);
    g_autoptr(RubatoEngine) third = owner(2);

    add_to(first, 1);
    take(first, /* full_every= */ 0);
    restore(second);
    add_to(second, 2); /* the second word of two */
    ck_assert_uint_eq(stats_of(second).n_rows, 1);
    log_capture_start();
    restore(third);
    g_free(log_capture_wait("does not restore what admit = \"own\" knew", "other parts"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots and admission");
    TCase *cases = tcase_create("admission");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, run_that_resumes_makes_the_same_rows_with_the_same_bits, 0,
                        2 * G_N_ELEMENTS(learnt));
    tcase_add_loop_test(cases, counts_come_back_on_other_parts, 0, G_N_ELEMENTS(places));
    tcase_add_test(cases, counts_before_a_restore_are_forgotten);
    tcase_add_loop_test(cases, snapshots_of_changes_have_all_counts, 0, 2);
    tcase_add_test(cases, table_with_another_admission_begins_anew_and_says_so);
    tcase_add_test(cases, registered_admission_begins_anew_on_other_parts_and_says_so);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
