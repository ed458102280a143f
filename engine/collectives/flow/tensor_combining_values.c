/* The values of allreduce, reduce_scatter and broadcast: parts are made, combined, and given to
 * this node's workers. See tensor_combining.c.
 *
 * Threads: any; the functions change nothing but the arrays, and the residuals of these values. */
#include "engine/collectives/flow/tensor_combining_private.h"

#include <string.h>

#include "engine/collectives/work/tensor_stream.h"

enum { FEW_ARRAYS = 16 };     /* that need no memory of their own */
enum { BLOCK_VALUES = 1024 }; /* that are compressed at a time */

/* Values of one tensor, one behind another. */
typedef struct {
    const uint8_t **inputs;
    uint8_t **outputs;
    TensorResidual *residual; /* of the tensor */
    uint64_t first;           /* value of the tensor */
    uint64_t n;               /* values */
    uint32_t tensor;
    size_t offset; /* of the first one: bytes in each array */
    uint64_t at;   /* values of the chunk before it */
} Run;

/* ---- where chunks are ---- */

/* The first run of the values from begin up to `end`. */
static Run first_run(const TensorFlow *flow, uint64_t begin, uint64_t end)
{
    const TensorCombining *const it = flow->combining;
    const uint32_t tensor =
        it->n_tensors == 1 ? 0 : tensor_at(it->tensor_ends, it->n_tensors, begin);
    const uint64_t first = tensor == 0 ? 0 : it->tensor_ends[tensor - 1];

    return (Run){ .inputs = it->inputs + (size_t)tensor * it->n_inputs,
                  .outputs = it->outputs + (size_t)tensor * it->n_outputs,
                  .residual = flow->plan.residuals == NULL ? NULL : flow->plan.residuals[tensor],
                  .tensor = tensor,
                  .first = begin - first,
                  .n = MIN(end, it->tensor_ends[tensor]) - begin,
                  .offset = (begin - first) * it->size };
}

/* Moves to the next one, of the next tensor that has values. False: it was the last one. */
static bool next_run(const TensorFlow *flow, uint64_t begin, uint64_t end, Run *run)
{
    const TensorCombining *const it = flow->combining;

    run->at += run->n;
    if (run->at == end - begin)
        return false;
    do {
        run->tensor++;
        run->inputs += it->n_inputs;
        run->outputs += it->n_outputs;
    } while (it->tensor_ends[run->tensor] == begin + run->at);
    if (flow->plan.residuals != NULL)
        run->residual = flow->plan.residuals[run->tensor];
    run->first = run->offset = 0;
    run->n = MIN(end, it->tensor_ends[run->tensor]) - begin - run->at;
    return true;
}

/* ---- making and taking ---- */

/* A result that was compressed goes to this node's workers. */
static void expand_out(const TensorCombining *it, const Run *run, const uint8_t *halves)
{
    const TensorReduction expand = { .dtype = it->last.dtype,
                                     .result = it->last.result,
                                     .reduce = { .prescale = 1, .postscale = 1 },
                                     .divisor = 1 };

    for (uint32_t i = 0; i < it->n_outputs; i++) {
        const void *const from = halves;
        void *const to = run->outputs[i] + run->offset;

        tensor_reduce(&expand, &from, 1, &to, 1, 0, run->n, 0);
    }
}

uint8_t *combining_place(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values)
{
    const TensorCombining *const it = flow->combining;

    if (it->n_outputs == 0 || it->compression != RUBATO_COMPRESSION_NONE || n_values == 0)
        return NULL;
    const Run run = first_run(flow, begin_value, begin_value + n_values);
    return run.n == n_values ? run.outputs[0] + run.offset : NULL;
}

/* Copies values to this node's workers. */
void combining_copy_out(const TensorFlow *flow, uint64_t begin_value, const void *values, size_t n)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t end_value = begin_value + n / it->result_size;
    const bool streams = it->last.n_streamed > 0;
    Run run = first_run(flow, begin_value, end_value);

    do {
        const uint8_t *const from = (const uint8_t *)values + run.at * it->result_size;

        if (it->compression != RUBATO_COMPRESSION_NONE) {
            expand_out(it, &run, from);
            continue;
        }
        for (uint32_t i = 0; i < it->n_outputs; i++)
            if (run.outputs[i] + run.offset == from)
                continue;
            else if (streams)
                tensor_stream(run.outputs[i] + run.offset, from, run.n * it->size);
            else
                tensor_stream_near(run.outputs[i] + run.offset, from, run.n * it->size);
    } while (next_run(flow, begin_value, end_value, &run));
    if (streams)
        tensor_stream_end();
}

void combining_read_out(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                        void *values)
{
    const size_t size = flow->combining->size;
    Run run = first_run(flow, begin_value, begin_value + n_values);

    do
        memcpy((uint8_t *)values + run.at * size, run.outputs[0] + run.offset, run.n * size);
    while (next_run(flow, begin_value, begin_value + n_values, &run));
}

/* Combines this node's own values of one tensor into each of the arrays. */
static void make_run(const TensorCombining *it, const Run *run, void *const *outputs,
                     uint32_t n_outputs)
{
    const void *few[FEW_ARRAYS];
    g_autofree const void **many =
        it->n_inputs > FEW_ARRAYS ? g_new(const void *, it->n_inputs) : NULL;
    const void **const inputs = many != NULL ? many : few;

    for (uint32_t i = 0; i < it->n_inputs; i++)
        inputs[i] = run->inputs[i] + run->offset;
    if (it->has_parts)
        tensor_reduce(&it->first, inputs, it->n_inputs, outputs, n_outputs, 0, run->n, 0);
    else
        for (uint32_t i = 0; i < n_outputs; i++)
            tensor_stream_near(outputs[i], inputs[0], run->n * it->size);
}

/* The same as halves. */
static void compress_run(const TensorCombining *it, const Run *run, void *const *outputs,
                         uint32_t n_outputs)
{
    float values[BLOCK_VALUES];
    void *const block = values;

    for (uint64_t at = 0, n; at < run->n; at += n) {
        Run part = *run;

        n = part.n = MIN(run->n - at, BLOCK_VALUES);
        part.offset += at * it->size;
        make_run(it, &part, &block, 1);
        tensor_compress(it->compression, values, run->residual->part + run->first + at,
                        (uint16_t *)outputs[0] + at, n);
    }
    for (uint32_t i = 1; i < n_outputs; i++)
        memcpy(outputs[i], outputs[0], run->n * it->part_size);
}

/* The same of chunks that follow one another. */
void combining_make_part(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                         void *const *outputs, uint32_t n_outputs)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t end_value = begin_value + n_values;
    g_autofree void **arrays = g_new(void *, n_outputs);
    Run run = first_run(flow, begin_value, end_value);

    do {
        for (uint32_t i = 0; i < n_outputs; i++)
            arrays[i] = (uint8_t *)outputs[i] + run.at * it->part_size;
        if (it->compression == RUBATO_COMPRESSION_NONE)
            make_run(it, &run, arrays, n_outputs);
        else
            compress_run(it, &run, arrays, n_outputs);
    } while (next_run(flow, begin_value, end_value, &run));
}

const void *combining_part_in_place(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values)
{
    const TensorCombining *const it = flow->combining;

    if (it->has_parts || n_values == 0)
        return NULL;
    const Run run = first_run(flow, begin_value, begin_value + n_values);
    return run.n == n_values ? run.inputs[0] + run.offset : NULL;
}

/* ---- combining ---- */

/* Of a reduce_scatter: each worker takes what is its own of the chunk. */
static void scatter(const TensorFlow *flow, const void *const *parts, uint32_t n_parts,
                    uint64_t begin_value, uint64_t end_value)
{
    const TensorCombining *const it = flow->combining;

    for (uint32_t i = 0; i < it->n_outputs; i++) {
        const uint64_t from = MAX(begin_value, it->output_begins[i]);
        const uint64_t to = MIN(end_value, it->output_ends[i]);
        void *output = it->outputs[i];

        if (from < to)
            tensor_reduce(&it->last, parts, n_parts, &output, 1, from - begin_value,
                          to - begin_value, (size_t)(it->output_begins[i] - begin_value));
    }
}

/* The arrays of one tensor that are combined, and those that the result goes to. */
typedef struct {
    const void **parts; /* in their order */
    uint32_t n_parts;
    void **outputs; /* messages, then those of this node's workers */
} Arrays;

/* Combines parts to a result that travels as halves, and gives it to this node's workers as it
 * travels. */
static void combine_to_halves(const TensorFlow *flow, const Run *run, void *const *sent,
                              uint32_t n_sent, const Arrays *arrays)
{
    const TensorCombining *const it = flow->combining;
    uint16_t *const halves = (uint16_t *)sent[0] + run->at;
    float values[BLOCK_VALUES];

    for (uint64_t at = 0, n; at < run->n; at += n) {
        void *const output = values;

        n = MIN(run->n - at, BLOCK_VALUES);
        tensor_reduce(&it->last, arrays->parts, arrays->n_parts, &output, 1, at, at + n, at);
        tensor_compress(it->compression, values, run->residual->result + run->first + at,
                        halves + at, n);
    }
    for (uint32_t i = 1; i < n_sent; i++)
        memcpy((uint16_t *)sent[i] + run->at, halves, run->n * sizeof *halves);
    expand_out(it, run, (const uint8_t *)halves);
}

/* Combines all parts of one tensor. own: this node's part; NULL: it is the input. */
static void combine_run(const TensorFlow *flow, const CombiningInputs *inputs, const Run *run,
                        const uint8_t *own, void *const *sent, uint32_t n_sent,
                        const Arrays *arrays)
{
    const TensorCombining *const it = flow->combining;
    uint32_t n = 0;

    for (uint32_t i = 0; i < inputs->n; i++)
        if (i != inputs->own)
            arrays->parts[i] = (const uint8_t *)inputs->parts[i] + run->at * it->part_size;
    arrays->parts[inputs->own] =
        own != NULL ? own + run->at * it->part_size : run->inputs[0] + run->offset;
    if (it->compression != RUBATO_COMPRESSION_NONE && n_sent > 0) {
        combine_to_halves(flow, run, sent, n_sent, arrays);
        return;
    }
    for (uint32_t i = 0; i < n_sent; i++)
        arrays->outputs[n++] = (uint8_t *)sent[i] + run->at * it->size;
    for (uint32_t i = 0; i < it->n_outputs; i++)
        arrays->outputs[n++] = run->outputs[i] + run->offset;
    TensorReduction last = it->last;
    if (inputs->sends_output && last.n_streamed > 0)
        last.n_streamed--; /* it is read at once, so it stays in the cache */
    tensor_reduce(&last, arrays->parts, inputs->n, arrays->outputs, n, 0, run->n, 0);
}

bool combining_combine_parts(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                             const CombiningInputs *inputs, void *const *sent, uint32_t n_sent)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t end_value = begin_value + n_values;
    g_autofree const void **parts = g_memdup2(inputs->parts, inputs->n * sizeof *parts);
    g_autofree void **outputs = g_new(void *, it->n_outputs + n_sent);
    g_autofree void *made = NULL;
    const void *own = inputs->parts[inputs->own];
    const Arrays arrays = { parts, inputs->n, outputs };

    if (it->has_parts && own == NULL) {
        made = g_try_malloc(n_values * it->part_size);
        if (made == NULL)
            return false;
        combining_make_part(flow, begin_value, n_values, &made, 1);
        own = made;
    }
    if (it->output_begins != NULL) {
        parts[inputs->own] = own != NULL ? own : it->inputs[0] + begin_value * it->size;
        scatter(flow, parts, inputs->n, begin_value, end_value);
        return true;
    }
    Run run = first_run(flow, begin_value, end_value);
    do
        combine_run(flow, inputs, &run, own, sent, n_sent, &arrays);
    while (next_run(flow, begin_value, end_value, &run));
    return true;
}
