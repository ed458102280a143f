/* Names that come again: see tensor_repeat_cases.h. */
#include "tests/support/collectives/tensor_repeat_cases.h"

#include "tests/support/engine/engine_fixture.h"

#include <math.h>

enum {
    N_TENSORS = 24,
    N_GROUP = 5, /* the last ones are a group */
    N_ITERATIONS = 7,
    MOST_VALUES = 9000, /* so many are combined by shares between more nodes than two */
    CHANGED = 3,        /* the iteration from which on shapes are others */
    MISMATCH = 5,       /* that in which worker 0 has another shape */
    MISMATCH_AT = 11,   /* of this tensor */
};

typedef struct {
    float values[N_TENSORS][MOST_VALUES];
    char names[N_TENSORS][16];
    RubatoTensor tensors[N_TENSORS];
} Batch;

/* Some are small, some larger than what one message has; number 7 has no values. */
static uint64_t size_of(uint32_t i, uint32_t iteration)
{
    const uint64_t n = i == 7 ? 0 : i % 5 == 0 ? MOST_VALUES - i : i + 1;

    return iteration >= CHANGED && i % 3 == 0 && n > 1 ? n - 1 : n;
}

/* Values whose sum depends on the order in which workers are added. */
static float value_of(uint32_t rank, uint32_t i, uint64_t k, uint32_t iteration)
{
    return 1.0f / (float)(i * 31 + k * 3 + rank * 7 + iteration + 1) * (k % 2 == 0 ? 1 : -1e3f);
}

static void make_batch(Batch *batch, uint32_t rank, uint32_t iteration)
{
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        const uint64_t n = size_of(i, iteration) +
                           (iteration == MISMATCH && i == MISMATCH_AT && rank == 0 ? 1 : 0);

        for (uint64_t k = 0; k < n; k++)
            batch->values[i][k] = value_of(rank, i, k, iteration);
        g_snprintf(batch->names[i], sizeof batch->names[i], "grad/%u", i);
        batch->tensors[i] = (RubatoTensor){ .name = batch->names[i],
                                            .dtype = RUBATO_F32,
                                            .n_dims = 1,
                                            .shape = { n },
                                            .input = batch->values[i],
                                            .output = batch->values[i] };
    }
}

static RubatoReduce reduce_of(uint32_t i)
{
    return (RubatoReduce){ .reduction = i % 4 == 3 ? RUBATO_REDUCTION_MAX : RUBATO_REDUCTION_SUM };
}

/* Each worker begins with another one. The last ticket is the group's. */
static bool start(RubatoWorker *worker, Batch *batch, RubatoTicket *tickets, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_alone = N_TENSORS - N_GROUP;
    RubatoTensor group[N_GROUP];

    for (uint32_t i = 0; i < N_GROUP; i++)
        group[i] = batch->tensors[n_alone + (i + rank) % N_GROUP];
    for (uint32_t i = 0; i < n_alone; i++) {
        const uint32_t k = (i * 7 + rank * 11) % n_alone;
        const RubatoReduce reduce = reduce_of(k);

        tickets[k] =
            rubato_worker_allreduce_async(worker, &batch->tensors[k], &reduce, NULL, error);
        TRY(tickets[k] != 0);
    }
    tickets[n_alone] =
        rubato_worker_allreduce_group_async(worker, group, N_GROUP, NULL, NULL, error);
    return tickets[n_alone] != 0;
}

static bool is_near(float value, double expected, double scale)
{
    return ABS((double)value - expected) <= 1e-5 * scale;
}

/* The sum is that of doubles, nearly. */
static bool check_tensor(const RubatoWorker *worker, const Batch *batch, uint32_t i,
                         uint32_t iteration)
{
    const bool is_max = i < N_TENSORS - N_GROUP && i % 4 == 3;

    for (uint64_t k = 0; k < size_of(i, iteration); k++) {
        double sum = 0, most = -INFINITY, scale = 0;

        for (uint32_t rank = 0; rank < rubato_worker_n_workers(worker); rank++) {
            const double value = (double)value_of(rank, i, k, iteration);

            sum += value;
            most = MAX(most, value);
            scale += ABS(value);
        }
        if (!is_near(batch->values[i][k], is_max ? most : sum, scale))
            return false;
    }
    return true;
}

static bool repeat(RubatoWorker *worker, uint32_t iteration, Batch *batch, GByteArray *bits,
                   GError **error)
{
    const bool differs = iteration == MISMATCH && rubato_worker_n_workers(worker) > 1;
    RubatoTicket tickets[N_TENSORS - N_GROUP + 1];

    make_batch(batch, rubato_worker_rank(worker), differs ? MISMATCH : iteration);
    if (iteration == MISMATCH && !differs)
        batch->tensors[MISMATCH_AT].shape[0]--;
    TRY(start(worker, batch, tickets, error));
    for (uint32_t i = 0; i < G_N_ELEMENTS(tickets); i++) {
        g_autoptr(GError) failure = NULL;
        const bool fails = differs && i == MISMATCH_AT;

        REQUIRE(rubato_worker_wait(worker, tickets[i], &failure) == !fails);
        REQUIRE(!fails || g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH));
    }
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        if (differs && i == MISMATCH_AT)
            continue;
        REQUIRE(check_tensor(worker, batch, i, iteration));
        if (bits != NULL && rubato_worker_rank(worker) == 0)
            g_byte_array_append(bits, (const guint8 *)batch->values[i],
                                (guint)(size_of(i, iteration) * sizeof(float)));
    }
    return true;
}

bool tensor_repeat(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree Batch *batch = g_new0(Batch, 1);

    for (uint32_t iteration = 0; iteration < N_ITERATIONS; iteration++)
        TRY(repeat(worker, iteration, batch, user_data, error));
    return true;
}

/* The others ask behind a barrier that worker 0 enters once it has looked. */
bool tensor_poll_early(RubatoWorker *worker, void *user_data, GError **error)
{
    const bool looks = rubato_worker_rank(worker) == 0 && rubato_worker_n_workers(worker) > 1;
    float value = 1;
    const RubatoTensor tensor = {
        .name = "early", .dtype = RUBATO_F32, .input = &value, .output = &value
    };
    RubatoTicket ticket = 0;

    (void)user_data;
    for (int i = 0; i < 3; i++) {
        value = 1;
        if (looks) {
            ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
            TRY(ticket != 0);
            REQUIRE(!rubato_worker_poll(worker, ticket));
        }
        TRY(rubato_worker_named_barrier(worker, "looked", error));
        if (!looks) {
            ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
            TRY(ticket != 0);
        }
        TRY(rubato_worker_wait(worker, ticket, error));
        REQUIRE(value == (float)rubato_worker_n_workers(worker));
    }
    return true;
}
