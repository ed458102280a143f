/* A part moves to a node that has no memory for it: the part stays where it was with all that it
 * had, the call names the table and the node, and a later move succeeds. On that node every
 * allocation whose size comes from data fails in turn.
 *
 * docs/liveness.md: A node without memory */
#include <string.h>
#include <sys/mman.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/scarce_memory.h"
#include "tests/support/runner.h"

enum { HOME, STARVING, N_NODES }; /* numbers of the nodes, and of their servers */
enum { N_KEYS = 3000, WIDTH = 4, N_VALUES = N_KEYS * WIDTH, N_STATES = 4 * N_VALUES };
enum { N_CLOCKS = 8 };

/* A node that has no memory for less, such as the header of a message, ends. */
enum { LEAST_BYTES = 4096 };

typedef struct {
    const char *over, *storage;
    bool is_used; /* a task adds to the table while the part moves */
} MemoryCase;

static const MemoryCase memory_cases[] = {
    { "shm", "dense", false }, { "shm", "hash", false }, { "tcp", "hash", false },
    { "shm", "hash", true },   { "tcp", "dense", true },
};

/* Whether an allocation has failed in this round. The starving node tells the other one, in memory
 * that they share. */
static _Atomic bool *has_failed;

typedef struct {
    double rows[N_VALUES], states[N_STATES];
} Contents;

static bool read_all(RubatoEngine *engine, const MemoryCase *with, Contents *contents,
                     GError **error)
{
    return rubato_engine_get_range(engine, "t", 0, N_KEYS, contents->rows, error) &&
           (with->is_used ||
            rubato_engine_get_state_range(engine, "t", 0, N_KEYS, contents->states, error));
}

/* Every row has this much more than before, or at least as much as before. */
static bool expect_more(const Contents *before, const Contents *now, double more, bool exactly,
                        GError **error)
{
    for (int i = 0; i < N_VALUES; i++)
        EXPECT(exactly ? now->rows[i] == before->rows[i] + more : now->rows[i] >= before->rows[i],
               "value %d was %g and is %g, after adding %g", i, before->rows[i], now->rows[i],
               more);
    EXPECT(memcmp(now->states, before->states, sizeof now->states) == 0, "state is lost");
    return true;
}

static bool add_ones(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree double *ones = g_new(double, N_VALUES);
    g_autofree double *values = g_new(double, N_VALUES);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (int i = 0; i < N_VALUES; i++)
        ones[i] = 1;
    for (int clock = 0; clock < N_CLOCKS; clock++)
        if (!rubato_kv_table_get_range(table, 0, N_KEYS, values, error) ||
            !rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}

/* The move, without memory on one node. *moved: whether the part is there. */
static bool move_without_memory(RubatoEngine *engine, uint64_t failing, bool *moved, GError **error)
{
    GError *found = NULL;

    if (engine->self == STARVING)
        scarce_memory_begin(LEAST_BYTES, failing, 1);
    *moved = rubato_engine_move_part(engine, "t", HOME, STARVING, &found);
    if (engine->self == STARVING)
        *has_failed = scarce_memory_end();
    EXPECT(rubato_engine_barrier(engine, NULL), "the run goes on");
    EXPECT(*moved || *has_failed, "no allocation failed: %s", found->message);
    if (*moved)
        return true;
    EXPECT(strstr(found->message, "node 7") != NULL, "it is not named: %s", found->message);
    return cluster_expect_error(&found, RUBATO_ERROR_MEMORY, "table t", error);
}

/* One round: allocation number `failing` fails. Whatever comes of it, the rows are there, and the
 * part is at home afterwards. */
static bool play_round(RubatoEngine *engine, const MemoryCase *with, uint64_t failing, bool *moved,
                       GError **error)
{
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "add", .run = add_ones, .tables = tables };
    g_autofree Contents *before = g_new0(Contents, 1), *now = g_new0(Contents, 1);
    g_autoptr(GError) cause = NULL;
    RubatoTaskRun *run = NULL;
    bool ended_well = true;

    if (!read_all(engine, with, before, error) || !rubato_engine_barrier(engine, error))
        return false;
    if (with->is_used && (run = rubato_engine_start(engine, &task, error)) == NULL)
        return false;
    if (!move_without_memory(engine, failing, moved, error))
        return false;
    if (run != NULL) {
        ended_well = rubato_task_run_wait(run, &cause);
        EXPECT(ended_well || g_error_matches(cause, RUBATO_ERROR, RUBATO_ERROR_MEMORY),
               "the task failed: %s", cause->message);
        EXPECT(ended_well || strstr(cause->message, "table t") != NULL, "%s", cause->message);
    }
    if (!read_all(engine, with, now, error) ||
        !expect_more(before, now, with->is_used ? N_NODES * N_CLOCKS : 0, ended_well, error) ||
        !rubato_engine_barrier(engine, error))
        return false;
    return !*moved || rubato_engine_move_part(engine, "t", HOME, HOME, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const MemoryCase *with = data;
    const RubatoTableSpec spec = { .name = "t",
                                   .dtype = RUBATO_F64,
                                   .width = WIDTH,
                                   .storage = with->storage,
                                   .n_keys = strcmp(with->storage, "hash") == 0 ? 0 : N_KEYS,
                                   .model = "ssp",
                                   .staleness = 1,
                                   .update = with->is_used ? "add" : "adam" };
    g_autofree double *deltas = g_new(double, N_VALUES);
    uint32_t n_unmoved = 0;
    bool failed = true;

    for (int i = 0; i < N_VALUES; i++)
        deltas[i] = 1 + i % 7;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        (engine->self == HOME && !rubato_engine_add_range(engine, "t", 0, N_KEYS, deltas, error)) ||
        !rubato_engine_barrier(engine, error))
        return false;
    for (uint64_t failing = 1; failed; failing += 1 + failing / 4) {
        bool moved = false;

        if (!play_round(engine, with, failing, &moved, error))
            return false;
        n_unmoved += !moved;
        failed = *has_failed;
        EXPECT(rubato_engine_barrier(engine, error), "the other node has read it, too");
    }
    /* beside a task, it may be the task's requests for which there is no memory */
    EXPECT(n_unmoved > 0 || with->is_used, "no move failed");
    return true;
}

START_TEST(a_part_stays_with_all_that_it_has_if_the_other_node_has_no_memory)
{
    const MemoryCase *with = &memory_cases[_i];
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 1, 1 } }, .over = with->over });

    has_failed =
        mmap(NULL, sizeof *has_failed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(has_failed, MAP_FAILED);
    cluster_start(run, play, with);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster parts memory");
    TCase *parts = cluster_add_case(suite, "parts");

    tcase_add_loop_test(parts, a_part_stays_with_all_that_it_has_if_the_other_node_has_no_memory, 0,
                        (int)G_N_ELEMENTS(memory_cases));
    return run_suite(suite);
}
