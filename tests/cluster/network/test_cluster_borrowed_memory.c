/* What is allocated for a push of 64 MB that borrows its array: at most a hundredth of it, in one
 * process and between nodes. Between nodes the receiver stands still until all of the push is
 * queued, because memory would be used again for what it has taken in. The same push with a copy
 * shows that a copy would be noticed. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static const FlowSizes usual = FLOW_SIZES_USUAL;
static const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };
static const char *const tables[] = { "rows", NULL };

/* Rows of nine floats: 64 MB. A message of half a megabyte would have an odd number of
 * them, and its values would not end at a multiple of eight bytes. */
enum { WIDTH = 9, N_LARGE = 1777000 };

static float *map_ones(size_t n)
{
    float *const ones =
        mmap(NULL, n * sizeof *ones, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert(ones != MAP_FAILED);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    return ones;
}

static size_t peak_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss << 10;
}

typedef struct {
    const char *over; /* NULL: in one process */
    bool encrypts;
    size_t n_first; /* rows of the first push */
} Way;

static int gate[2]; /* opened by the case when the receiver stands still */

/* The table keeps a copy. */
static bool push_copied(RubatoKVTable *table, const float *ones, size_t n, RubatoWorker *worker,
                        GError **error)
{
    const RubatoTicket ticket =
        rubato_kv_table_add_range_async(table, 0, n, ones, /* options= */ NULL, error);

    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

typedef struct {
    RubatoWorker *worker;
    RubatoKVTable *table;
    const float *ones;
    const Way *way;
} Pusher;

/* Writes to *n_bytes what a borrowed push of n rows allocates. number: of the push, from 1. */
static bool push_borrowed(const Pusher *pusher, int number, size_t n, size_t *n_bytes,
                          GError **error)
{
    size_t before;
    char open;

    cluster_say("ready %d", number);
    EXPECT(pusher->way->over == NULL || read(gate[0], &open, 1) == 1, "no gate");
    before = peak_bytes();
    const RubatoTicket ticket =
        rubato_kv_table_add_range_async(pusher->table, 0, n, pusher->ones, &borrowed, error);

    cluster_say("queued %d", number);
    if (ticket == 0 || !rubato_worker_wait(pusher->worker, ticket, error))
        return false;
    *n_bytes = peak_bytes() - before;
    return true;
}

/* The first push makes what is there once: in one process the rows, otherwise what the connection
 * needs. It is small, so that it leaves no memory that a copy could use. */
static bool push_large(RubatoWorker *worker, void *user_data, GError **error)
{
    const size_t all = (size_t)N_LARGE * WIDTH * sizeof(float);
    const Way *const way = user_data;
    size_t with_first, with_borrowed, before;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    if (table == NULL)
        return false;
    float *const ones = map_ones((size_t)N_LARGE * WIDTH);
    const Pusher pusher = { worker, table, ones, way };
    if (!push_borrowed(&pusher, 1, way->n_first, &with_first, error) ||
        !push_borrowed(&pusher, 2, N_LARGE, &with_borrowed, error))
        return false;
    before = peak_bytes();
    if (!push_copied(table, ones, N_LARGE, worker, error))
        return false;
    EXPECT(peak_bytes() - before >= all / 2, "a copy is not noticed");
    EXPECT(with_borrowed <= all / 100, "%zu bytes of %zu are allocated", with_borrowed, all);
    g_assert(munmap(ones, all) == 0);
    return true;
}

static bool play_large(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_F32, .width = WIDTH, .n_keys = N_LARGE
    };
    const RubatoKey keys[] = { 0, 999, N_LARGE - 1 };
    float values[3 * WIDTH];

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "push", push_large, data, tables, error) ||
        !rubato_engine_get(engine, "rows", keys, 3, values, error))
        return false;
    for (int i = 0; i < WIDTH; i++)
        EXPECT(values[i] == 3 && values[WIDTH + i] == 3 && values[2 * WIDTH + i] >= 2, "%d: %g", i,
               (double)values[i]);
    return true;
}

/* The first push is larger than the ring, and than all packets that are encrypted at a time. The
 * receiver stands still in it, too: otherwise that may take in values as soon as they come, and the
 * sender then uses the same memory again and again, so that the rest of it is not there yet. */
#define N_FIRST ((size_t)120000)

static const Way ways[] = { { "tcp", false, N_FIRST },
                            { "tcp", true, N_FIRST },
                            { "shm", false, N_FIRST } };

/* Node 0 has the scheduler and the worker, the other node all rows. */
START_TEST(nothing_is_copied_of_a_push_to_another_node_that_borrows_its_buffers)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                       .nodes = { { 0, 1 }, { 1, 0 } },
                                                       .over = ways[_i].over,
                                                       .encrypts = ways[_i].encrypts,
                                                       .sizes = &usual });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_large, &ways[_i]);
    for (int i = 1; i <= 2; i++) {
        g_autofree char *ready = g_strdup_printf("ready %d", i);
        g_autofree char *queued = g_strdup_printf("queued %d", i);

        cluster_wait_for(run, 0, ready);
        cluster_signal(run, 1, SIGSTOP);
        ck_assert_int_eq(write(gate[1], "", 1), 1);
        cluster_wait_for(run, 0, queued);
        cluster_signal(run, 1, SIGCONT);
    }
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

START_TEST(nothing_is_copied_of_a_push_in_one_process_that_borrows_its_buffers)
{
    const Way here = { .n_first = N_LARGE };

    g_free(cluster_play_alone(1, 1, play_large, &here));
}
END_TEST

int main(void)
{
    /* A sanitizer's own memory cannot be told from a program's. */
    if (cluster_slowness() != 1)
        return TEST_SKIPPED;

    Suite *const suite = suite_create("cluster_borrowed_memory");
    TCase *const cases = cluster_add_case(suite, "memory");

    tcase_add_test(cases, nothing_is_copied_of_a_push_in_one_process_that_borrows_its_buffers);
    tcase_add_loop_test(cases, nothing_is_copied_of_a_push_to_another_node_that_borrows_its_buffers,
                        0, G_N_ELEMENTS(ways));
    return run_suite(suite);
}
