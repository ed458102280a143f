/* The work of one operation within a node: see tensor_work.h. */
#include "engine/collectives/work/tensor_work.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/work/tensor_adasum.h"
#include "engine/collectives/work/tensor_gathered.h"
#include "engine/collectives/work/tensor_stream.h"

/* Chunks are so large that taking one costs little beside doing it, and so small that several
 * threads end at about the same time: each gets two at least, unless they would be tiny. */
enum { LEAST_VALUES = 2 << 10, MOST_VALUES = 8 << 10, CHUNK_BYTES = 128 << 10 };

uint64_t rubato_reduce_scatter_rows(uint64_t n_rows, uint32_t n_workers, uint32_t rank)
{
    g_return_val_if_fail(n_workers > 0 && rank < n_workers, 0);
    return n_rows / n_workers + (rank < n_rows % n_workers ? 1 : 0);
}

uint32_t tensor_at(const uint64_t *ends, uint32_t n, uint64_t value)
{
    uint32_t low = 0, high = n - 1;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (ends[middle] > value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void cut(TensorWork *work, uint64_t n_units, uint64_t units_of_chunk)
{
    /* the number of a chunk has 32 bits */
    while (n_units / units_of_chunk >= UINT32_MAX)
        units_of_chunk *= 2;
    work->n_units = n_units;
    work->units_of_chunk = units_of_chunk;
    work->n_chunks = (uint32_t)((n_units + units_of_chunk - 1) / units_of_chunk);
}

/* ---- what is combined ---- */

/* Collects the arrays of a tensor behind those of the ones before it. Returns a request for it. */
static const TensorRequest *find_arrays(TensorWork *work, TensorPart *const *parts,
                                        uint32_t n_workers, uint32_t tensor)
{
    const TensorRequest *request = NULL;
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < n_workers; rank++) {
        const TensorPart *const part = parts[(size_t)tensor * n_workers + rank];

        if (part == NULL)
            continue;
        request = &part->request;
        work->inputs[(size_t)tensor * work->n_inputs + n] = part->input;
        work->outputs[(size_t)tensor * work->n_inputs + n++] = part->output;
    }
    return request;
}

static void prepare_reduction(TensorWork *work, TensorPart *const *parts, uint32_t n_tensors,
                              uint32_t n_workers)
{
    const TensorRequest *request = NULL;
    uint64_t end = 0, n_values = 0;

    for (uint32_t rank = 0; rank < n_workers; rank++)
        work->n_inputs += parts[rank] != NULL;
    work->n_outputs = work->n_inputs;
    work->n_tensors = n_tensors;
    work->inputs = g_new(const void *, (size_t)n_tensors * work->n_inputs);
    work->outputs = g_new(void *, (size_t)n_tensors * work->n_inputs);
    work->tensor_ends = n_tensors > 1 ? g_new(uint64_t, n_tensors) : NULL;
    for (uint32_t i = 0; i < n_tensors; i++) {
        request = find_arrays(work, parts, n_workers, i);
        n_values += tensor_request_values(request);
        if (n_tensors > 1)
            work->tensor_ends[i] = n_values;
    }
    work->reduction =
        (TensorReduction){ .dtype = request->dtype,
                           .result = request->dtype,
                           .reduce = request->reduce,
                           .divisor = request->reduce.divides_by_all ? n_workers : work->n_inputs };
    if (n_values >= TENSOR_STREAM_BYTES / rubato_dtype_size(request->dtype))
        work->reduction.n_streamed = work->n_outputs;
    const uint64_t n_fair = (n_values + 2 * work->n_inputs - 1) / (2 * work->n_inputs);
    cut(work, n_values, CLAMP(n_fair, LEAST_VALUES, MOST_VALUES));
    if (request->operation != TENSOR_REDUCE_SCATTER)
        return;
    work->output_ends = g_new(uint64_t, n_workers);
    const uint64_t row_values =
        tensor_request_row_bytes(request) / rubato_dtype_size(request->dtype);
    for (uint32_t rank = 0; rank < n_workers; rank++) {
        end +=
            row_values * rubato_reduce_scatter_rows(tensor_request_rows(request), n_workers, rank);
        work->output_ends[rank] = end;
    }
}

/* Of a reduce_scatter: each output takes what is its own of the chunk. */
static void scatter(const TensorWork *work, uint64_t begin, uint64_t end)
{
    uint64_t first = 0; /* of the output's values */

    for (uint32_t i = 0; i < work->n_outputs; first = work->output_ends[i++]) {
        const uint64_t from = MAX(begin, first), to = MIN(end, work->output_ends[i]);

        if (from < to)
            tensor_reduce(&work->reduction, work->inputs, work->n_inputs, &work->outputs[i], 1,
                          from, to, first);
    }
}

/* Of several tensors: what the chunk has of each. */
static void reduce_tensors(const TensorWork *work, uint64_t begin, uint64_t end)
{
    uint32_t tensor = tensor_at(work->tensor_ends, work->n_tensors, begin);

    for (uint64_t to; begin < end; begin = to, tensor++) {
        const uint64_t first = tensor == 0 ? 0 : work->tensor_ends[tensor - 1];
        const size_t arrays = (size_t)tensor * work->n_inputs;

        to = MIN(end, work->tensor_ends[tensor]);
        tensor_reduce(&work->reduction, work->inputs + arrays, work->n_inputs,
                      work->outputs + arrays, work->n_outputs, begin - first, to - first, 0);
    }
}

/* Adasum: the dots of each chunk first. They are added up in the order of the chunks, so that the
 * result does not depend on which thread does which. RUBATO_ERROR_MEMORY. */
static bool prepare_adasum(TensorWork *work, TensorPart *const *parts, uint32_t n_workers,
                           GError **error)
{
    const uint64_t n_dots = tensor_adasum_n_dots(n_workers);

    if (work->n_inputs < 2 || work->n_chunks == 0)
        return true; /* one worker's values are the result */
    work->dots = g_try_malloc0_n(work->n_chunks, n_dots * sizeof *work->dots);
    if (work->dots == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the dot products of %u workers' values", n_workers);
        return false;
    }
    work->n_vectors = n_workers;
    work->vectors = g_new0(const void *, n_workers);
    for (uint32_t rank = 0; rank < n_workers; rank++)
        if (parts[rank] != NULL)
            work->vectors[rank] = parts[rank]->input;
    return true;
}

static void do_adasum(const TensorWork *work, uint32_t chunk, uint64_t begin, uint64_t end)
{
    const RubatoDtype dtype = work->reduction.dtype;

    if (work->weights == NULL)
        tensor_adasum_add_dots(dtype, work->vectors, work->n_vectors, begin, end,
                               work->dots + chunk * tensor_adasum_n_dots(work->n_vectors));
    else
        tensor_adasum_combine(dtype, work->vectors, work->n_vectors, work->weights, work->outputs,
                              work->n_outputs, begin, end);
}

bool tensor_work_next_round(TensorWork *work)
{
    const RubatoReduce *const reduce = &work->reduction.reduce;
    const uint64_t n_dots = tensor_adasum_n_dots(work->n_vectors);

    if (work->dots == NULL || work->weights != NULL)
        return false;
    for (uint32_t chunk = 1; chunk < work->n_chunks; chunk++)
        for (uint64_t i = 0; i < n_dots; i++)
            work->dots[i] += work->dots[chunk * n_dots + i];
    work->weights = g_new(double, work->n_vectors);
    tensor_adasum_weigh(work->dots, work->n_vectors, reduce->prescale * reduce->postscale,
                        work->weights);
    return true;
}

/* ---- what is copied ---- */

static void add_copy(TensorWork *work, const void *from, void *to, uint64_t n_bytes)
{
    TensorCopy *const copy = &work->copies[work->n_copies];

    if (n_bytes == 0 || from == to)
        return;
    *copy = (TensorCopy){ from, to, work->n_units, n_bytes };
    work->n_units += n_bytes;
    work->n_copies++;
}

static void prepare_broadcast(TensorWork *work, TensorPart *const *parts, uint32_t n_workers)
{
    const TensorRequest *const request = &parts[0]->request;
    const uint64_t n_bytes = tensor_request_rows(request) * tensor_request_row_bytes(request);

    for (uint32_t rank = 0; rank < n_workers; rank++)
        if (parts[rank]->output != NULL)
            add_copy(work, parts[request->root]->input, parts[rank]->output, n_bytes);
}

/* How many rows go from one worker to another. */
static uint64_t rows_between(TensorPart *const *parts, uint32_t from, uint32_t to)
{
    return parts[from]->splits != NULL ? parts[from]->splits[to]
                                       : tensor_request_rows(&parts[from]->request);
}

/* Allocates what one worker gathers. */
static bool allocate(TensorPart *const *parts, uint32_t n_workers, uint32_t rank, GError **error)
{
    RubatoGathered *const result = &parts[rank]->result;
    const uint64_t row_bytes = tensor_request_row_bytes(&parts[rank]->request);
    uint64_t n_bytes;
    bool fits = true;

    result->rows = g_new0(uint64_t, n_workers);
    for (uint32_t from = 0; from < n_workers; from++) {
        result->rows[from] = rows_between(parts, from, rank);
        fits = fits && !__builtin_add_overflow(result->n_rows, result->rows[from], &result->n_rows);
    }
    fits = fits && !__builtin_mul_overflow(result->n_rows, row_bytes, &n_bytes);
    if (fits &&
        (n_bytes == 0 || tensor_gathered_allocate(parts[rank]->gathered_pool, result, n_bytes)))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "no memory for %" G_GUINT64_FORMAT " rows of %" G_GUINT64_FORMAT
                " bytes that worker %u would gather",
                result->n_rows, row_bytes, rank);
    return false;
}

static bool prepare_gathering(TensorWork *work, TensorPart *const *parts, uint32_t n_workers,
                              GError **error)
{
    const uint64_t row_bytes = tensor_request_row_bytes(&parts[0]->request);

    for (uint32_t rank = 0; rank < n_workers; rank++)
        if (!allocate(parts, n_workers, rank, error))
            return false;
    for (uint32_t from = 0; from < n_workers; from++) {
        uint64_t sent = 0; /* rows */

        for (uint32_t to = 0; to < n_workers; to++) {
            uint64_t before = 0; /* rows of earlier ranks, at the receiver */

            const uint64_t n_bytes = rows_between(parts, from, to) * row_bytes;

            for (uint32_t rank = 0; rank < from; rank++)
                before += parts[to]->result.rows[rank];
            if (n_bytes > 0) /* otherwise there may be no values */
                add_copy(work, (const uint8_t *)parts[from]->input + sent * row_bytes,
                         (uint8_t *)parts[to]->result.values + before * row_bytes, n_bytes);
            if (parts[from]->splits != NULL)
                sent += parts[from]->splits[to];
        }
    }
    return true;
}

static bool prepare_copies(TensorWork *work, TensorPart *const *parts, uint32_t n_workers,
                           GError **error)
{
    work->copies = g_new(TensorCopy, (size_t)n_workers * n_workers);
    work->streams_copies = parts[0]->request.operation == TENSOR_BROADCAST;
    if (work->streams_copies)
        prepare_broadcast(work, parts, n_workers);
    else if (!prepare_gathering(work, parts, n_workers, error))
        return false;
    cut(work, work->n_units, CHUNK_BYTES);
    return true;
}

static void copy(const TensorWork *work, uint64_t begin, uint64_t end)
{
    size_t low = 0, high = work->n_copies;
    bool streams = false;

    while (high - low > 1) { /* the copy in which the chunk begins */
        const size_t middle = low + (high - low) / 2;

        if (work->copies[middle].first <= begin)
            low = middle;
        else
            high = middle;
    }
    for (; begin < end; low++) {
        const TensorCopy *const one = &work->copies[low];
        const uint64_t offset = begin - one->first, n = MIN(end - begin, one->n_bytes - offset);

        if (work->streams_copies && one->n_bytes >= TENSOR_STREAM_BYTES) {
            tensor_stream(one->to + offset, one->from + offset, n);
            streams = true;
        } else {
            memcpy(one->to + offset, one->from + offset, n);
        }
        begin += n;
    }
    if (streams)
        tensor_stream_end();
}

/* ---- both ---- */

bool tensor_work_init(TensorWork *work, TensorPart *const *parts, uint32_t n_tensors,
                      uint32_t n_workers, GError **error)
{
    const TensorPart *first = NULL;

    *work = (TensorWork){ 0 };
    for (uint32_t rank = 0; first == NULL; rank++)
        first = parts[rank];
    switch (first->request.operation) {
    case TENSOR_ALLREDUCE:
    case TENSOR_REDUCE_SCATTER:
        prepare_reduction(work, parts, n_tensors, n_workers);
        return first->request.reduce.reduction != RUBATO_REDUCTION_ADASUM ||
               prepare_adasum(work, parts, n_workers, error);
    case TENSOR_BROADCAST:
    case TENSOR_ALLGATHER:
    case TENSOR_ALLTOALL:
        return prepare_copies(work, parts, n_workers, error);
    case TENSOR_BARRIER:
    case TENSOR_OPERATIONS:
        break;
    }
    return true;
}

void tensor_work_clear(TensorWork *work)
{
    g_free(work->inputs);
    g_free(work->outputs);
    g_free(work->tensor_ends);
    g_free(work->output_ends);
    g_free(work->vectors);
    g_free(work->dots);
    g_free(work->weights);
    g_free(work->copies);
}

void tensor_work_do(const TensorWork *work, uint32_t chunk)
{
    const uint64_t begin = chunk * work->units_of_chunk;
    const uint64_t end = MIN(begin + work->units_of_chunk, work->n_units);

    if (work->copies != NULL)
        copy(work, begin, end);
    else if (work->dots != NULL)
        do_adasum(work, chunk, begin, end);
    else if (work->output_ends != NULL)
        scatter(work, begin, end);
    else if (work->tensor_ends != NULL)
        reduce_tensors(work, begin, end);
    else
        tensor_reduce(&work->reduction, work->inputs, work->n_inputs, work->outputs,
                      work->n_outputs, begin, end, 0);
}
