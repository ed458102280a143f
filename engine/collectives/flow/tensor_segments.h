/* The values of a tensor, cut into a segment for each node, and these into chunks, which are
 * numbered through all segments.
 *
 * Threads: any that have the segments for themselves, or only read them. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_SEGMENTS_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t n;
    uint64_t chunk_values;
    uint64_t *ends;        /* by segment: the value at which it ends */
    uint64_t *first_chunk; /* by segment; and behind the last one */
    uint64_t n_turns;      /* chunks of the longest segment */
} TensorSegments;

/* Segments whose ends are set next: by tensor_segments_share, or one by one. */
void tensor_segments_init(TensorSegments *segments, uint32_t n, uint64_t chunk_values);
void tensor_segments_clear(TensorSegments *segments);

/* All about equally long. No two of them share a cache line. */
void tensor_segments_share(TensorSegments *segments, uint64_t n_values);

/* Numbers the chunks. The ends stay from now on. */
void tensor_segments_number(TensorSegments *segments);

uint64_t tensor_segments_chunks(const TensorSegments *segments);
uint64_t tensor_segment_begin(const TensorSegments *segments, uint32_t segment);
uint32_t tensor_segment_of(const TensorSegments *segments, uint64_t chunk);

/* The first value of the chunk. end: behind the last one. */
uint64_t tensor_chunk_begin(const TensorSegments *segments, uint64_t chunk, uint64_t *end);

/* How many chunks have n_values together: from that chunk on, in its segment. 0: no number has. */
uint32_t tensor_segments_run(const TensorSegments *segments, uint64_t chunk, uint64_t n_values);

/* Chunks of one segment, one behind another. */
typedef struct {
    uint64_t first;
    uint32_t n;
} TensorChunks;

/* What a node sends to the others: the n-th of the runs of at most that many chunks. Those of their
 * segments go in turn, first one of the next node: so not all nodes send to one at the same time.
 * n: below tensor_segments_sends. False: that segment is shorter. */
bool tensor_segments_nth_send(const TensorSegments *segments, uint32_t self, uint64_t n,
                              uint32_t most_chunks, TensorChunks *chunks);
uint64_t tensor_segments_sends(const TensorSegments *segments, uint32_t most_chunks);

#endif
