/* rubato_worker_reduce: numbers of all workers, combined in the order of their ranks.
 *
 * On one node an allreduce does just that. Between nodes an allreduce combines a node's values
 * first, which may round another way. So there it carries a matrix with a row for each worker:
 * each one fills its own row, and all others with -0, which changes no value that it is added to,
 * not even a zero's sign. Each worker then combines the rows itself, as one node would.
 *
 * Threads: the worker's. */
#include <rubato/error.h>

#include "engine/collectives/work/tensor_math.h"

#define NAME "of rubato_worker_reduce"

/* The last column says what a worker asks for: 1 more than the reduction. It stays 0 for a worker
 * that has joined. */
typedef struct {
    double *values; /* n_workers × n_columns */
    uint32_t n_workers;
    size_t n_columns;
} Matrix;

/* The allreduce. If workers disagree, it names what it carries, which says little to the caller: a
 * matrix, or with Adasum the numbers. So say first what was asked for. */
static bool allreduce(RubatoWorker *worker, const RubatoTensor *tensor, const RubatoReduce *carried,
                      size_t n, RubatoReduction reduction, GError **error)
{
    GError *fault = NULL;

    if (rubato_worker_allreduce(worker, tensor, carried, &fault))
        return true;
    if (g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_MISMATCH))
        g_prefix_error(&fault,
                       "rubato_worker_reduce: this worker asks for reduction %d of %zu numbers, "
                       "and all have to ask for the same: ",
                       (int)reduction, n);
    g_propagate_error(error, fault);
    return false;
}

static bool reduce_on_one_node(RubatoWorker *worker, double *values, size_t n,
                               RubatoReduction reduction, GError **error)
{
    const RubatoTensor tensor = { .name = NAME,
                                  .dtype = RUBATO_F64,
                                  .n_dims = 1,
                                  .shape = { n },
                                  .input = values,
                                  .output = values };
    const RubatoReduce reduce = { .reduction = reduction };

    return allreduce(worker, &tensor, &reduce, n, reduction, error);
}

static bool share_rows(RubatoWorker *worker, Matrix *matrix, const double *own,
                       RubatoReduction reduction, GError **error)
{
    const size_t n_all = matrix->n_workers * matrix->n_columns;
    double *const row = matrix->values + rubato_worker_rank(worker) * matrix->n_columns;
    const RubatoTensor tensor = { .name = NAME,
                                  .dtype = RUBATO_F64,
                                  .n_dims = 2,
                                  .shape = { matrix->n_workers, matrix->n_columns },
                                  .input = matrix->values,
                                  .output = matrix->values };

    for (size_t i = 0; i < n_all; i++)
        matrix->values[i] = -0.0;
    for (size_t i = 0; i + 1 < matrix->n_columns; i++)
        row[i] = own[i];
    row[matrix->n_columns - 1] = (double)reduction + 1;
    return allreduce(worker, &tensor, /* carried= */ NULL, matrix->n_columns - 1, reduction, error);
}

/* The rows of workers that have asked, in the order of the ranks. False if one has asked for
 * another reduction: all workers see the same matrix, so all fail. */
static bool find_rows(const Matrix *matrix, RubatoReduction reduction, const void **rows,
                      uint32_t *n_rows, GError **error)
{
    *n_rows = 0;
    for (uint32_t rank = 0; rank < matrix->n_workers; rank++) {
        const double *const row = matrix->values + rank * matrix->n_columns;
        const int asked = (int)row[matrix->n_columns - 1];

        if (asked == 0)
            continue;
        if (asked != (int)reduction + 1) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                        "rubato_worker_reduce: worker %u asks for reduction %d, and this worker "
                        "for %d; all have to ask for the same",
                        rank, asked - 1, (int)reduction);
            return false;
        }
        rows[(*n_rows)++] = row;
    }
    return true;
}

static bool reduce_between_nodes(RubatoWorker *worker, double *values, size_t n,
                                 RubatoReduction reduction, GError **error)
{
    Matrix matrix = { .n_workers = rubato_worker_n_workers(worker), .n_columns = n + 1 };
    g_autofree double *all = n < SIZE_MAX / sizeof(double) / matrix.n_workers
                                 ? g_try_new(double, matrix.n_workers *matrix.n_columns)
                                 : NULL;
    g_autofree const void **rows = g_new(const void *, matrix.n_workers);
    void *output = values;
    uint32_t n_rows;

    if (all == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "rubato_worker_reduce: no memory for %zu numbers of each worker; large arrays "
                    "are combined by rubato_worker_allreduce",
                    n);
        return false;
    }
    matrix.values = all;
    if (!share_rows(worker, &matrix, values, reduction, error) ||
        !find_rows(&matrix, reduction, rows, &n_rows, error))
        return false;
    const TensorReduction fold = {
        .dtype = RUBATO_F64,
        .result = RUBATO_F64,
        .reduce = { .reduction = reduction, .prescale = 1, .postscale = 1 },
        .divisor = n_rows
    };
    tensor_reduce(&fold, rows, n_rows, &output, 1, 0, n, 0);
    return true;
}

bool rubato_worker_reduce(RubatoWorker *worker, double *values, size_t n, RubatoReduction reduction,
                          GError **error)
{
    g_return_val_if_fail(worker != NULL && (values != NULL || n == 0), false);
    /* An allreduce by Adasum has the order of the ranks on any number of nodes, though its products
     * are added up node by node. A reduction that there is not is refused there, too. */
    if (rubato_worker_n_local_workers(worker) == rubato_worker_n_workers(worker) ||
        (unsigned)reduction > RUBATO_REDUCTION_PRODUCT)
        return reduce_on_one_node(worker, values, n, reduction, error);
    return reduce_between_nodes(worker, values, n, reduction, error);
}
