/* The segments of a tensor: see tensor_segments.h. */
#include "engine/collectives/flow/tensor_segments.h"

#include <glib.h>

enum { ALIGNED_VALUES = 64 }; /* segments begin at a multiple: no two nodes share a cache line */

void tensor_segments_init(TensorSegments *segments, uint32_t n, uint64_t chunk_values)
{
    *segments = (TensorSegments){ .n = n,
                                  .chunk_values = chunk_values,
                                  .ends = g_new0(uint64_t, n),
                                  .first_chunk = g_new0(uint64_t, n + 1) };
}

void tensor_segments_clear(TensorSegments *segments)
{
    g_free(segments->ends);
    g_free(segments->first_chunk);
}

void tensor_segments_share(TensorSegments *segments, uint64_t n_values)
{
    const uint64_t share =
        (n_values / segments->n + ALIGNED_VALUES) & ~(uint64_t)(ALIGNED_VALUES - 1);

    for (uint32_t i = 0; i < segments->n; i++)
        segments->ends[i] = MIN(i + 1 == segments->n ? n_values : share * (i + 1), n_values);
}

void tensor_segments_number(TensorSegments *segments)
{
    for (uint32_t i = 0; i < segments->n; i++) {
        const uint64_t n = segments->ends[i] - tensor_segment_begin(segments, i);
        const uint64_t n_chunks = (n + segments->chunk_values - 1) / segments->chunk_values;

        segments->first_chunk[i + 1] = segments->first_chunk[i] + n_chunks;
        segments->n_turns = MAX(segments->n_turns, n_chunks);
    }
}

uint64_t tensor_segments_chunks(const TensorSegments *segments)
{
    return segments->first_chunk[segments->n];
}

uint64_t tensor_segment_begin(const TensorSegments *segments, uint32_t segment)
{
    return segment == 0 ? 0 : segments->ends[segment - 1];
}

uint32_t tensor_segment_of(const TensorSegments *segments, uint64_t chunk)
{
    uint32_t segment = 0;

    while (chunk >= segments->first_chunk[segment + 1])
        segment++;
    return segment;
}

uint64_t tensor_chunk_begin(const TensorSegments *segments, uint64_t chunk, uint64_t *end)
{
    const uint32_t segment = tensor_segment_of(segments, chunk);
    const uint64_t begin = tensor_segment_begin(segments, segment) +
                           (chunk - segments->first_chunk[segment]) * segments->chunk_values;

    *end = MIN(begin + segments->chunk_values, segments->ends[segment]);
    return begin;
}

uint32_t tensor_segments_run(const TensorSegments *segments, uint64_t chunk, uint64_t n_values)
{
    uint64_t end;
    const uint64_t begin = tensor_chunk_begin(segments, chunk, &end);
    const uint64_t left = segments->ends[tensor_segment_of(segments, chunk)] - begin;

    if (n_values == 0 || n_values > left ||
        (n_values < left && n_values % segments->chunk_values != 0))
        return 0;
    return (uint32_t)((n_values + segments->chunk_values - 1) / segments->chunk_values);
}

bool tensor_segments_nth_send(const TensorSegments *segments, uint32_t self, uint64_t n,
                              uint32_t most_chunks, TensorChunks *chunks)
{
    const uint32_t n_others = segments->n - 1;
    const uint32_t segment = (self + 1 + (uint32_t)(n % n_others)) % segments->n;
    const uint64_t first = segments->first_chunk[segment] + n / n_others * most_chunks;
    const uint64_t end = segments->first_chunk[segment + 1];

    if (first >= end)
        return false;
    *chunks = (TensorChunks){ first, (uint32_t)MIN(end - first, most_chunks) };
    return true;
}

uint64_t tensor_segments_sends(const TensorSegments *segments, uint32_t most_chunks)
{
    return (segments->n_turns + most_chunks - 1) / most_chunks * (segments->n - 1);
}
