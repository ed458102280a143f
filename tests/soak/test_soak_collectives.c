/* Collectives on tensors of more than 2³¹ values: between two workers of a process, and between two
 * nodes through shared memory and over TCP. All values are right, also those behind the 2³¹st.
 * Needs 5 GiB of memory, and is skipped without them. */
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static const uint64_t N_VALUES = (UINT64_C(1) << 31) + 1001;

static uint8_t value_of(uint32_t rank, uint64_t i)
{
    return (uint8_t)(i + (i >> 8) * (rank + 1) + (i >> 31));
}

static bool check(const uint8_t *values, uint64_t first, uint64_t n, bool is_sum, GError **error)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t expected =
            (uint8_t)(value_of(0, first + i) + (is_sum ? value_of(1, first + i) : 0));

        EXPECT(values[i] == expected, "value %zu is %u, not %u", (size_t)(first + i), values[i],
               expected);
    }
    return true;
}

static void fill(uint8_t *values, uint32_t rank)
{
    for (uint64_t i = 0; i < N_VALUES; i++)
        values[i] = value_of(rank, i);
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree uint8_t *values = g_malloc(N_VALUES);
    RubatoTensor tensor = { .name = "large",
                            .dtype = RUBATO_U8,
                            .n_dims = 1,
                            .shape = { N_VALUES },
                            .input = values,
                            .output = values };

    (void)user_data;
    fill(values, rank);
    if (!rubato_worker_allreduce(worker, &tensor, NULL, error) ||
        !check(values, 0, N_VALUES, /* is_sum= */ true, error))
        return false;
    fill(values, rank);
    tensor.name = "broadcast";
    return rubato_worker_broadcast(worker, &tensor, 0, error) &&
           check(values, 0, N_VALUES, /* is_sum= */ false, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return cluster_run_task(engine, "large", work, NULL, NULL, error);
}

static const ClusterShape shapes[] = {
    { .n_nodes = 1, .nodes = { { 1, 2 } } },
    { .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .over = "shm" },
    { .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .over = "tcp" },
};

START_TEST(tensors_of_more_values_than_an_int_counts_are_right)
{
    const double pages = (double)sysconf(_SC_AVPHYS_PAGES);

    if (pages * (double)sysconf(_SC_PAGESIZE) < 5.0 * 1024 * 1024 * 1024) {
        g_printerr("skipped: less than 5 GiB of memory are free\n");
        return;
    }
    ClusterRun *const run = cluster_run_new(&shapes[_i]);
    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("soak_collectives");
    TCase *const cases = cluster_add_case(suite, "large");

    tcase_set_timeout(cases, 1200);
    tcase_add_loop_test(cases, tensors_of_more_values_than_an_int_counts_are_right, 0,
                        G_N_ELEMENTS(shapes));
    return run_suite(suite);
}
