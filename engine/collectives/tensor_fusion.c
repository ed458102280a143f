/* Allreduces that travel together: see tensor_exchange_private.h.
 *
 * Names that are decided one behind another become one operation if they have one dtype, reduction
 * and set, and all workers ask for them, up to a number of bytes. All nodes hear the same decisions
 * in the same messages, and a bundle ends with its message. So all make the same bundles, and
 * nobody has to tell another one of them. Nothing is copied for it: the operation reads and writes
 * the tensors where they are. Each value is combined as it would be alone, so the bits are the
 * same. What is compressed travels alone: how often it is rounded follows from the size of what
 * travels (tensor_flow.h). So does Adasum, whose weights are those of one tensor. */
#include "engine/collectives/tensor_exchange_private.h"

/* More would make a message wait for too many. */
enum { MOST_NAMES = 4096 };

static uint64_t bytes_of(const TensorEntry *entry)
{
    return tensor_request_values(&entry->part.request) *
           rubato_dtype_size(entry->part.request.dtype);
}

bool fusion_suits(const TensorExchange *exchange, const TensorEntry *entry)
{
    return entry->part.request.operation == TENSOR_ALLREDUCE &&
           entry->part.request.reduce.compression == RUBATO_COMPRESSION_NONE &&
           entry->part.request.reduce.reduction != RUBATO_REDUCTION_ADASUM &&
           bytes_of(entry) < exchange->place.fusion_bytes;
}

/* The same but for the shape. */
static bool agree(const TensorRequest *one, const TensorRequest *other)
{
    TensorRequest reshaped = *other;

    reshaped.n_dims = one->n_dims;
    for (uint32_t i = 0; i < one->n_dims; i++)
        reshaped.shape[i] = one->shape[i];
    return tensor_request_fits(one, &reshaped);
}

bool fusion_fits(const TensorExchange *exchange, const TensorSet *set, const TensorEntry *entry)
{
    const Bundle *const bundle = &exchange->bundle;
    const TensorEntry *const first = bundle->entries->pdata[0];

    return bundle->set == set && bundle->n_names < MOST_NAMES &&
           bundle->n_bytes + bytes_of(entry) <= exchange->place.fusion_bytes &&
           agree(&first->part.request, &entry->part.request);
}

void fusion_add(TensorExchange *exchange, const TensorSet *set, uint64_t number,
                TensorEntry **entries)
{
    Bundle *const bundle = &exchange->bundle;

    if (bundle->n_names == 0)
        *bundle = (Bundle){ .set = set,
                            .number = number,
                            .entries = g_ptr_array_sized_new(set->n_local) };
    bundle->n_names++;
    bundle->n_bytes += bytes_of(entries[0]);
    for (uint32_t i = 0; i < set->n_local; i++)
        g_ptr_array_add(bundle->entries, entries[i]);
    g_free(entries);
}

bool fusion_take(TensorExchange *exchange, Decided *decided)
{
    Bundle *const bundle = &exchange->bundle;

    if (bundle->n_names == 0)
        return false;
    *decided = (Decided){ .set = bundle->set,
                          .number = bundle->number,
                          .n_names = bundle->n_names,
                          .entries = (TensorEntry **)g_ptr_array_free(bundle->entries, FALSE) };
    *bundle = (Bundle){ 0 };
    return true;
}
