/* What a worker asks in a collective on a tensor: what all workers have to agree on.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_REQUEST_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_REQUEST_H

#include <rubato/collectives.h>
#include <rubato/error.h>

#include "engine/control/state_walk.h"

typedef enum {
    TENSOR_ALLREDUCE,
    TENSOR_BROADCAST,
    TENSOR_ALLGATHER,
    TENSOR_REDUCE_SCATTER,
    TENSOR_ALLTOALL,
    TENSOR_BARRIER,
    TENSOR_OPERATIONS,
} TensorOperation;

typedef struct {
    TensorOperation operation;
    RubatoDtype dtype;
    uint32_t n_dims;
    uint64_t shape[RUBATO_TENSOR_MOST_DIMENSIONS];
    RubatoReduce reduce; /* of an allreduce and a reduce_scatter; else zeros. No scale is 0 */
    uint32_t root;       /* of a broadcast; else 0 */
} TensorRequest;

/* Whether values, sizes and dtype fit each other, whatever other workers ask. n_workers: of the
 * task. RUBATO_ERROR_INVALID. */
bool tensor_request_check(const TensorRequest *request, const char *name, uint32_t n_workers,
                          GError **error);

/* Whether two requests can be one operation. Allgather and alltoall may differ in their first
 * dimension. */
bool tensor_request_fits(const TensorRequest *one, const TensorRequest *other);

/* Whether they ask for the same, the first dimension included. */
bool tensor_request_is_same(const TensorRequest *one, const TensorRequest *other);

/* Whether a worker that has joined can take part. */
bool tensor_request_may_join(const TensorRequest *request);

/* Of the tensor, and of one row; a tensor without dimensions has one row. Checked requests have
 * no size that overflows. */
uint64_t tensor_request_values(const TensorRequest *request);
uint64_t tensor_request_rows(const TensorRequest *request);
uint64_t tensor_request_row_bytes(const TensorRequest *request);

/* "allreduce". */
const char *tensor_operation_name(TensorOperation operation);

/* Appends "allreduce (sum) of f32 [3, 4]". */
void tensor_request_describe(const TensorRequest *request, GString *text);

void tensor_request_walk(StateWalk *walk, TensorRequest *request);

#endif
