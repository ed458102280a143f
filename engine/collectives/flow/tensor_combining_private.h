/* What the files of combining share. See tensor_combining.c.
 *
 * Threads: as in tensor_flow.h. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_COMBINING_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_COMBINING_PRIVATE_H

#include "engine/collectives/flow/tensor_flow_private.h"
#include "engine/collectives/flow/tensor_segments.h"

enum { COMBINING_CHUNK_VALUES = 16 << 10 };

/* A message with the parts of some chunks. */
typedef struct {
    void *owner;
    uint32_t n_chunks; /* that are not combined */
} CombiningParts;

typedef struct {
    uint32_t n_missing;      /* parts, and with is_whole the step that sends */
    bool has_come;           /* its result */
    CombiningParts **owners; /* by node; NULL: it has not come */
    const void **parts;      /* by node: where it is */
    void *own;               /* this node's part, if it is compressed once for all */
} CombiningChunk;

typedef struct TensorRelaying TensorRelaying;

struct TensorCombining {
    TensorRelaying *relaying; /* if nodes pass on what they get: then there are no segments here */
    bool is_whole, is_broadcast, has_results;
    uint32_t root;           /* of a broadcast: the node that has the values */
    TensorSegments segments; /* with is_whole there is one */
    CombiningChunk *chunks;
    uint32_t most_chunks;        /* of a message that this node sends */
    uint64_t n_ahead;            /* chunks, the first ones, that this node has sent before */
    uint64_t next_send, n_sends; /* steps that send: see nth_send */

    TensorReduction first;  /* what this node's workers have is combined to its part, */
    TensorReduction middle; /* parts to a part of several nodes, */
    TensorReduction last;   /* and the parts to the result */
    bool has_parts;         /* a part is not simply the input of a worker */
    size_t part_size, size;
    RubatoCompression compression;
    size_t result_size; /* of a value of a result on its way */
    uint32_t n_tensors;
    uint64_t *tensor_ends;                 /* of all tensors' values: where each ends */
    const uint8_t **inputs;                /* by tensor; then by worker */
    uint32_t n_inputs;                     /* of a tensor */
    uint8_t **outputs;                     /* the same */
    uint64_t *output_begins, *output_ends; /* of a reduce_scatter */
    uint32_t n_outputs;

    /* See TensorPart.readers: of the worker from whose input parts may be sent, and of that from
     * whose output results may be. NULL: messages have copies. */
    Call *part_readers, *result_readers;
};

/* ---- tensor_combining_cut.c ---- */

/* The type in which values of such a request travel as parts. */
RubatoDtype combining_part_dtype(const TensorRequest *request);

/* Whether a tensor whose parts have so many bytes goes to all nodes, which combine all of it. */
bool combining_is_direct(const TensorRequest *request, uint64_t n_bytes, uint32_t n_nodes);

/* Cuts its values: to one segment for all nodes (is_whole), or to one of each. */
void combining_cut(const TensorFlowPlan *plan, const TensorRequest *request, bool is_whole,
                   TensorSegments *segments);

/* How many values, from the first one on, tensor_flow_ahead tells of a tensor that goes to all
 * nodes: all of a small one, or whole chunks. */
uint64_t combining_values_ahead(const TensorRequest *request);

/* tensor_flow_ahead. */
bool combining_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead);

/* ---- tensor_combining_values.c ---- */

/* Combines this node's own values, from begin_value on, into each of the arrays. */
void combining_make_part(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                         void *const *outputs, uint32_t n_outputs);

/* Where they are, if they are simply the input of a worker, one behind another; else NULL. */
const void *combining_part_in_place(const TensorFlow *flow, uint64_t begin_value,
                                    uint64_t n_values);

/* Parts of the same values, in the order in which they are combined. */
typedef struct {
    const void *const *parts;
    uint32_t n;
    uint32_t own;      /* which is this node's; NULL there: it is made, or is the input */
    bool sends_output; /* the result is sent from the first worker's output */
} CombiningInputs;

/* Combines all parts of values, from begin_value on, into the outputs of this node's workers and
 * each of the arrays, where they are as they travel. False: there was no memory. */
bool combining_combine_parts(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                             const CombiningInputs *inputs, void *const *sent, uint32_t n_sent);

/* Copies results, as they travel, from the outputs of a worker. They are not compressed. */
void combining_read_out(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                        void *values);

/* Where results, as they travel, belong in the first worker's output. NULL: nowhere as they are, or
 * not one behind another. */
uint8_t *combining_place(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values);

/* Copies n bytes of values, as they travel, to this node's workers. They may lie at that place. */
void combining_copy_out(const TensorFlow *flow, uint64_t begin_value, const void *values, size_t n);

#endif
