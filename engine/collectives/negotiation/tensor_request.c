/* What a worker asks: checks, comparison, words. See tensor_request.h. */
#include "engine/collectives/negotiation/tensor_request.h"

#include <math.h>
#include <string.h>

enum { MOST_SHOWN = 80 }; /* bytes of a name that is none */

const char *tensor_operation_name(TensorOperation operation)
{
    static const char *const names[TENSOR_OPERATIONS] = {
        [TENSOR_ALLREDUCE] = "allreduce", [TENSOR_BROADCAST] = "broadcast",
        [TENSOR_ALLGATHER] = "allgather", [TENSOR_REDUCE_SCATTER] = "reduce_scatter",
        [TENSOR_ALLTOALL] = "alltoall",   [TENSOR_BARRIER] = "named barrier",
    };

    return names[operation];
}

static const char *const reductions[] = { "sum", "mean", "min", "max", "product", "adasum" };

static bool reduces(const TensorRequest *request)
{
    return request->operation == TENSOR_ALLREDUCE || request->operation == TENSOR_REDUCE_SCATTER;
}

static bool has_rows(const TensorRequest *request)
{
    return request->operation == TENSOR_ALLGATHER || request->operation == TENSOR_ALLTOALL;
}

static bool is_real(RubatoDtype dtype)
{
    return dtype == RUBATO_F32 || dtype == RUBATO_F64 || dtype == RUBATO_F16 ||
           dtype == RUBATO_BF16;
}

enum { DELETE = 0x7f };

/* Whether one of eight bytes is a control character, or above ASCII. If ' ' is taken from a lower
 * byte, its highest bit is set, and was not before; likewise if 1 is taken from a zero, which
 * DELETE becomes. */
static bool has_other(const char *eight)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highest = ones << 7;
    uint64_t bytes;

    memcpy(&bytes, eight, sizeof bytes);
    const uint64_t deleted = bytes ^ ones * DELETE;
    const uint64_t low = (bytes - ones * ' ') & ~bytes, zero = (deleted - ones) & ~deleted;
    return ((bytes | low | zero) & highest) != 0;
}

static bool is_utf8_without_controls(const char *name, size_t n)
{
    if (!g_utf8_validate(name, (gssize)n, NULL))
        return false;
    for (const char *at = name; at < name + n; at = g_utf8_next_char(at))
        if (g_unichar_iscntrl(g_utf8_get_char(at)))
            return false;
    return true;
}

/* Logs and errors print names as they are. Groups have many, which are asked again and again;
 * nearly all are ASCII. */
static bool can_be_printed(const char *name, size_t n)
{
    size_t i = 0;

    while (i + 8 <= n && !has_other(name + i))
        i += 8;
    while (i < n && name[i] >= ' ' && name[i] < DELETE)
        i++;
    return i == n || is_utf8_without_controls(name, n);
}

static bool check_name(const char *name, GError **error)
{
    const size_t n = strnlen(name, RUBATO_TENSOR_NAME_BYTES);

    if (n > 0 && n < RUBATO_TENSOR_NAME_BYTES && can_be_printed(name, n))
        return true;
    /* the error is one line of UTF-8, too */
    g_autofree char *shown = g_strndup(name, MOST_SHOWN);
    g_autofree char *escaped = g_strescape(shown, NULL);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "\"%s\" is no name for a tensor: give it 1 to %d bytes of UTF-8, without control "
                "characters",
                escaped, RUBATO_TENSOR_NAME_BYTES - 1);
    return false;
}

/* What is wrong with the tensor; NULL if nothing is. */
static const char *find_fault(const TensorRequest *request)
{
    uint64_t n_bytes = rubato_dtype_size(request->dtype);

    if (n_bytes == 0)
        return "it has a dtype that there is not";
    if (request->n_dims > RUBATO_TENSOR_MOST_DIMENSIONS)
        return "it has more than 8 dimensions";
    for (uint32_t i = 0; i < request->n_dims; i++)
        /* an empty tensor may have no row, whose bytes are still counted */
        if (__builtin_mul_overflow(n_bytes, MAX(request->shape[i], 1), &n_bytes) ||
            n_bytes > INT64_MAX)
            return "it is larger than any memory";
    if (request->n_dims == 0 && (has_rows(request) || request->operation == TENSOR_REDUCE_SCATTER))
        return "it has no rows to be dealt out; give it one dimension at least";
    return NULL;
}

static const char *find_reduction_fault(const TensorRequest *request)
{
    const RubatoReduce *const reduce = &request->reduce;

    if ((unsigned)reduce->reduction > RUBATO_REDUCTION_ADASUM)
        return "there is no such reduction";
    if ((unsigned)reduce->compression > RUBATO_COMPRESSION_BF16)
        return "there is no such compression";
    if (reduce->compression != RUBATO_COMPRESSION_NONE &&
        (request->dtype != RUBATO_F32 ||
         (reduce->reduction != RUBATO_REDUCTION_SUM && reduce->reduction != RUBATO_REDUCTION_MEAN)))
        return "only sums and means of f32 are compressed";
    if (!isfinite(reduce->prescale) || !isfinite(reduce->postscale))
        return "its scale is no finite number";
    if (!is_real(request->dtype) && (reduce->prescale != 1 || reduce->postscale != 1))
        return "only floating-point tensors have scales";
    if (request->dtype == RUBATO_BOOL && reduce->reduction == RUBATO_REDUCTION_MEAN)
        return "bool has no mean; take the sum, which is \"or\", or convert it";
    if (reduce->reduction != RUBATO_REDUCTION_ADASUM)
        return NULL;
    if (!is_real(request->dtype))
        return "Adasum is of floating-point tensors only";
    if (request->operation != TENSOR_ALLREDUCE)
        return "only an allreduce has Adasum";
    return NULL;
}

bool tensor_request_check(const TensorRequest *request, const char *name, uint32_t n_workers,
                          GError **error)
{
    const char *fault;

    if (!check_name(name, error))
        return false;
    fault = find_fault(request);
    if (fault == NULL && reduces(request))
        fault = find_reduction_fault(request);
    if (fault == NULL && request->root >= n_workers)
        fault = "the task has no worker with the rank of its root";
    if (fault == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%s %s: %s",
                tensor_operation_name(request->operation), name, fault);
    return false;
}

static inline bool same_reduce(const RubatoReduce *one, const RubatoReduce *other)
{
    return one->reduction == other->reduction && one->prescale == other->prescale &&
           one->postscale == other->postscale && one->divides_by_all == other->divides_by_all &&
           one->compression == other->compression;
}

/* first: the dimension with which the comparison of shapes begins. */
static inline bool is_same_from(const TensorRequest *one, const TensorRequest *other,
                                uint32_t first)
{
    if (one->operation != other->operation || one->dtype != other->dtype ||
        one->n_dims != other->n_dims || one->root != other->root ||
        !same_reduce(&one->reduce, &other->reduce))
        return false;
    for (uint32_t i = first; i < one->n_dims; i++)
        if (one->shape[i] != other->shape[i])
            return false;
    return true;
}

bool tensor_request_fits(const TensorRequest *one, const TensorRequest *other)
{
    return is_same_from(one, other, has_rows(one) ? 1 : 0);
}

bool tensor_request_is_same(const TensorRequest *one, const TensorRequest *other)
{
    return is_same_from(one, other, 0);
}

bool tensor_request_may_join(const TensorRequest *request)
{
    return request->operation == TENSOR_ALLREDUCE || request->operation == TENSOR_BARRIER;
}

uint64_t tensor_request_values(const TensorRequest *request)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < request->n_dims; i++)
        n *= request->shape[i];
    return n;
}

uint64_t tensor_request_rows(const TensorRequest *request)
{
    return request->n_dims == 0 ? 1 : request->shape[0];
}

uint64_t tensor_request_row_bytes(const TensorRequest *request)
{
    uint64_t n = rubato_dtype_size(request->dtype);

    for (uint32_t i = 1; i < request->n_dims; i++)
        n *= request->shape[i];
    return n;
}

static void describe_reduce(const TensorRequest *request, GString *text)
{
    const RubatoReduce *const reduce = &request->reduce;

    g_string_append_printf(text, " (%s", reductions[reduce->reduction]);
    if (reduce->prescale != 1)
        g_string_append_printf(text, ", prescale %.17g", reduce->prescale);
    if (reduce->postscale != 1)
        g_string_append_printf(text, ", postscale %.17g", reduce->postscale);
    if (reduce->divides_by_all)
        g_string_append(text, ", divided by all");
    if (reduce->compression != RUBATO_COMPRESSION_NONE)
        g_string_append_printf(text, ", compressed to %s",
                               reduce->compression == RUBATO_COMPRESSION_F16 ? "f16" : "bf16");
    g_string_append_c(text, ')');
}

void tensor_request_describe(const TensorRequest *request, GString *text)
{
    g_string_append(text, tensor_operation_name(request->operation));
    if (request->operation == TENSOR_BARRIER)
        return;
    if (reduces(request))
        describe_reduce(request, text);
    if (request->operation == TENSOR_BROADCAST)
        g_string_append_printf(text, " from rank %u", request->root);
    g_string_append_printf(text, " of %s [", rubato_dtype_name(request->dtype));
    for (uint32_t i = 0; i < request->n_dims; i++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, i > 0 ? ", " : "", request->shape[i]);
    g_string_append_c(text, ']');
}

void tensor_request_walk(StateWalk *walk, TensorRequest *request)
{
    RubatoReduce *const reduce = &request->reduce;

    WALK(walk, request->operation);
    WALK(walk, request->dtype);
    WALK(walk, request->n_dims);
    walk->is_wrong |= request->n_dims > RUBATO_TENSOR_MOST_DIMENSIONS;
    walk_u64s(walk, request->shape, RUBATO_TENSOR_MOST_DIMENSIONS);
    WALK(walk, reduce->reduction);
    reduce->prescale = walk_double(walk, reduce->prescale);
    reduce->postscale = walk_double(walk, reduce->postscale);
    WALK(walk, reduce->divides_by_all);
    WALK(walk, reduce->compression);
    WALK(walk, request->root);
}
