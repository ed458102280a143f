/* The rows of allgather and alltoall: where they lie with this node's workers, and how they are
 * copied. See tensor_gathering.c.
 *
 * Threads: any; the functions change nothing but the arrays, unless they say so. */
#include "engine/collectives/flow/tensor_gathering_private.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/work/tensor_gathered.h"
#include "engine/collectives/work/tensor_stream.h"

static const TensorPart *part_of(const TensorFlow *flow, uint32_t local)
{
    return flow->plan.parts[local];
}

static uint32_t rank_of(const TensorFlow *flow, uint32_t node, uint32_t local)
{
    return flow->plan.first_ranks[node] + local;
}

/* ---- blocks ---- */

/* How many workers of the node a block is for: those of an allgather are for all. */
static uint32_t n_receivers(const TensorFlow *flow, uint32_t node)
{
    return flow->gathering->is_alltoall ? flow->plan.n_ranks_of[node] : 1;
}

uint64_t gathering_blocks_from(const TensorFlow *flow, uint32_t node)
{
    return (uint64_t)flow->plan.n_ranks_of[node] * n_receivers(flow, flow->plan.self);
}

uint64_t gathering_blocks_to(const TensorFlow *flow, uint32_t node)
{
    return (uint64_t)flow->n_local * n_receivers(flow, node);
}

/* Rows that a worker of this node sends to a rank. */
static uint64_t rows_between(const TensorFlow *flow, uint32_t local, uint32_t rank)
{
    const TensorPart *const part = part_of(flow, local);

    return flow->gathering->is_alltoall ? part->splits[rank] : tensor_request_rows(&part->request);
}

uint64_t gathering_rows_to(const TensorFlow *flow, uint32_t node, uint64_t block)
{
    const uint32_t n = n_receivers(flow, node);

    return rows_between(flow, (uint32_t)(block / n), rank_of(flow, node, (uint32_t)(block % n)));
}

void gathering_find_out_begins(const TensorFlow *flow)
{
    const uint32_t n_ranks = flow->plan.n_ranks;

    for (uint32_t local = 0; local < flow->n_local; local++) {
        uint64_t *const begins = flow->gathering->out_begins[local] = g_new(uint64_t, n_ranks);
        uint64_t n = 0;

        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            begins[rank] = n;
            n += part_of(flow, local)->splits[rank];
        }
    }
}

/* A part of a block that is in a range of a stream. */
typedef struct {
    uint32_t from, to;    /* the workers, among those of their nodes */
    uint64_t offset;      /* bytes of the block before it */
    uint64_t at, n_bytes; /* of the range before it, and its own */

    uint64_t next, next_at; /* the block behind it, and bytes of the stream before that one */
} Run;

/* The next one. False: there is none. At the beginning all of *run is 0. */
static bool next_run(const GatheringRange *range, uint64_t n_blocks, uint32_t n_to,
                     uint64_t (*rows_of)(const TensorFlow *flow, uint32_t node, uint64_t block),
                     const TensorFlow *flow, Run *run)
{
    while (run->next < n_blocks && run->next_at < range->end) {
        const uint64_t block = run->next++, first = run->next_at;

        run->next_at += rows_of(flow, range->node, block) * flow->gathering->row_bytes;
        const uint64_t begin = MAX(first, range->begin), end = MIN(run->next_at, range->end);
        if (begin >= end)
            continue;
        run->from = (uint32_t)(block / n_to);
        run->to = (uint32_t)(block % n_to);
        run->offset = begin - first;
        run->at = begin - range->begin;
        run->n_bytes = end - begin;
        return true;
    }
    return false;
}

static bool next_out(const TensorFlow *flow, const GatheringRange *range, Run *run)
{
    return next_run(range, gathering_blocks_to(flow, range->node), n_receivers(flow, range->node),
                    gathering_rows_to, flow, run);
}

static uint64_t rows_from(const TensorFlow *flow, uint32_t node, uint64_t block)
{
    return node == flow->plan.self ? gathering_rows_to(flow, node, block)
                                   : flow->gathering->sides[node].rows[block];
}

static bool next_in(const TensorFlow *flow, const GatheringRange *range, Run *run)
{
    return next_run(range, gathering_blocks_from(flow, range->node),
                    n_receivers(flow, flow->plan.self), rows_from, flow, run);
}

/* ---- arrays ---- */

/* Of a worker of this node. */
static bool allocate(TensorFlow *flow, uint32_t local)
{
    TensorGathering *const it = flow->gathering;
    RubatoGathered *const result = &flow->plan.parts[local]->result;
    const uint32_t n_to = n_receivers(flow, flow->plan.self);
    uint64_t n_bytes = 0;
    uint32_t rank = 0;
    bool fits = true;

    result->rows = g_new0(uint64_t, flow->plan.n_ranks);
    it->begins[local] = g_new0(uint64_t, flow->plan.n_ranks);
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++)
        for (uint32_t from = 0; from < flow->plan.n_ranks_of[node]; from++, rank++) {
            it->begins[local][rank] = result->n_rows;
            result->rows[rank] = rows_from(flow, node, (uint64_t)from * n_to + local % n_to);
            fits = fits &&
                   !__builtin_add_overflow(result->n_rows, result->rows[rank], &result->n_rows);
        }
    fits = fits && !__builtin_mul_overflow(result->n_rows, it->row_bytes, &n_bytes);
    if (fits && (n_bytes == 0 ||
                 tensor_gathered_allocate(part_of(flow, local)->gathered_pool, result, n_bytes)))
        return true;
    tensor_flow_fail_here(
        flow, g_error_new(RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                          "no memory for %" G_GUINT64_FORMAT " rows of %" G_GUINT64_FORMAT
                          " bytes that worker %u would gather",
                          result->n_rows, it->row_bytes, rank_of(flow, flow->plan.self, local)));
    return false;
}

bool gathering_allocate(TensorFlow *flow)
{
    for (uint32_t local = 0; local < flow->n_local; local++)
        if (!allocate(flow, local))
            return false;
    return true;
}

/* Where a part of a block goes that comes from a node, with a worker of this one. */
static uint8_t *output_of(const TensorFlow *flow, uint32_t node, const Run *run, uint32_t local)
{
    return (uint8_t *)part_of(flow, local)->result.values +
           flow->gathering->begins[local][rank_of(flow, node, run->from)] *
               flow->gathering->row_bytes +
           run->offset;
}

/* Where a part of a block lies that goes to a node. */
static const uint8_t *input_of(const TensorFlow *flow, uint32_t node, const Run *run)
{
    const TensorGathering *const it = flow->gathering;
    const uint64_t before =
        it->is_alltoall ? it->out_begins[run->from][rank_of(flow, node, run->to)] : 0;

    return (const uint8_t *)part_of(flow, run->from)->input + before * it->row_bytes + run->offset;
}

const void *gathering_input(const TensorFlow *flow, const GatheringRange *range, Call **readers)
{
    Run run = { 0 };

    if (!next_out(flow, range, &run) || run.n_bytes < range->end - range->begin)
        return NULL;
    *readers = part_of(flow, run.from)->readers;
    return input_of(flow, range->node, &run);
}

uint8_t *gathering_place(const TensorFlow *flow, const GatheringRange *range)
{
    Run run = { 0 };

    if (!next_in(flow, range, &run) || run.n_bytes < range->end - range->begin)
        return NULL;
    return output_of(flow, range->node, &run, run.to);
}

/* ---- copying ---- */

/* Whether a worker gathers so much that it is in no cache. */
static bool is_far(const TensorFlow *flow, uint32_t local)
{
    return part_of(flow, local)->result.n_rows * flow->gathering->row_bytes >=
           TENSOR_GATHERED_LARGE_BYTES;
}

/* To a worker. */
static void copy(const TensorFlow *flow, uint32_t local, uint8_t *to, const uint8_t *from,
                 uint64_t n_bytes)
{
    if (to == from) /* it came there */
        return;
    if (is_far(flow, local))
        tensor_stream(to, from, n_bytes);
    else
        memcpy(to, from, n_bytes);
}

/* To those that get a part of a block from a node. */
static void give_out(const TensorFlow *flow, uint32_t node, const Run *run, const uint8_t *from)
{
    const bool is_alltoall = flow->gathering->is_alltoall;
    const uint32_t end = is_alltoall ? run->to + 1 : flow->n_local;

    for (uint32_t local = is_alltoall ? run->to : 0; local < end; local++)
        copy(flow, local, output_of(flow, node, run, local), from, run->n_bytes);
}

void gathering_make_piece(const TensorFlow *flow, const GatheringRange *range, void *const *places,
                          uint32_t n_places, bool copies_own)
{
    const uint32_t self = flow->plan.self;
    const bool is_one = copies_own && n_places > 0 && flow->n_local == 1 && is_far(flow, 0);
    Run run = { 0 };

    while (next_out(flow, range, &run)) {
        const uint8_t *from = input_of(flow, range->node, &run);
        uint8_t *const place = n_places > 0 ? (uint8_t *)places[0] + run.at : NULL;

        if (is_one) /* the usual one of an allgather: the values are read once */
            tensor_stream_both(place, output_of(flow, self, &run, 0), from, run.n_bytes);
        else if (n_places > 0)
            tensor_stream_near(place, from, run.n_bytes);
        if (n_places > 0)
            from = place;
        for (uint32_t i = 1; i < n_places; i++)
            memcpy((uint8_t *)places[i] + run.at, from, run.n_bytes);
        if (copies_own && !is_one)
            give_out(flow, self, &run, from);
    }
    if (copies_own)
        tensor_stream_end();
}

void gathering_take_piece(const TensorFlow *flow, const GatheringRange *range, const uint8_t *bytes)
{
    Run run = { 0 };

    while (next_in(flow, range, &run))
        give_out(flow, range->node, &run, bytes + run.at);
    tensor_stream_end();
}
