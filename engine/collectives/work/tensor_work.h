/* The work of one operation within a node: values that are combined, or bytes that are copied. It
 * is cut into chunks, which any threads may do in any order, each chunk once. Adasum has two rounds
 * of them: the dots, then the sum.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_WORK_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_WORK_H

#include "engine/collectives/negotiation/tensor_request.h"
#include "engine/collectives/work/tensor_gathered.h"
#include "engine/collectives/work/tensor_math.h"
#include "io/net/call.h"

/* A worker's part. */
typedef struct {
    TensorRequest request;
    const void *input;
    void *output;
    uint64_t *splits;                  /* of an alltoall: by rank */
    RubatoGathered *gathered;          /* of an allgather and an alltoall; written at the end */
    RubatoGathered result;             /* what becomes *gathered */
    TensorGatheredPool *gathered_pool; /* that its memory is of; NULL: of none */
    Call *readers; /* see tensor_flow.h; NULL: its arrays are not read behind the end */
} TensorPart;

/* Bytes of one part that go to another. */
typedef struct {
    const uint8_t *from;
    uint8_t *to;
    uint64_t first; /* bytes of the copies before it */
    uint64_t n_bytes;
} TensorCopy;

typedef struct {
    uint32_t n_chunks;
    uint64_t n_units; /* values to be combined, or bytes to be copied */
    uint64_t units_of_chunk;

    /* What is combined. */
    TensorReduction reduction;
    const void **inputs; /* by tensor; then in the order of the ranks */
    uint32_t n_inputs;   /* of a tensor */
    void **outputs;      /* the same */
    uint32_t n_outputs;
    uint32_t n_tensors;
    uint64_t
        *tensor_ends; /* of several: the value, of all of them, at which each ends; else NULL */
    uint64_t *output_ends; /* of a reduce_scatter: the value at which each output ends; else NULL */

    /* Adasum of several. */
    const void **vectors; /* by rank; NULL: it has joined */
    uint32_t n_vectors;
    double *dots;    /* by chunk; NULL: it is another reduction */
    double *weights; /* by rank; NULL in the first round */

    /* What is copied. */
    TensorCopy *copies;
    size_t n_copies;
    bool streams_copies; /* large ones go past the caches. Memory of what is gathered was cleared by
                          * the kernel or freed by its caller just before: it is in the caches */
} TensorWork;

/* Prepares the work of these parts, which fit each other; by rank, NULL for workers that have
 * joined. More than one tensor are allreduces of one dtype and reduction; their parts follow one
 * another. Allocates what parts gather. RUBATO_ERROR_MEMORY. */
bool tensor_work_init(TensorWork *work, TensorPart *const *parts, uint32_t n_tensors,
                      uint32_t n_workers, GError **error);

/* The tensor that has a value below the last end, of n that follow one another and end at these. */
uint32_t tensor_at(const uint64_t *ends, uint32_t n, uint64_t value);

void tensor_work_clear(TensorWork *work);

/* Does one of the chunks. */
void tensor_work_do(const TensorWork *work, uint32_t chunk);

/* All chunks are done. True: and now all of them are to be done in the next round. */
bool tensor_work_next_round(TensorWork *work);

#endif
