/* Allreduces that travel together: see tensor_exchange_private.h.
 *
 * Names that are decided one behind another become one operation if they have one dtype, reduction
 * and set, and all workers ask for them, up to a number of bytes. All nodes hear the same decisions
 * in the same messages, and a bundle ends with its message. So all make the same bundles, and
 * nobody has to tell another one of them. Nothing is copied for it: the operation reads and writes
 * the tensors where they are. Each value is combined as it would be alone, so the bits are the
 * same. What is compressed travels alone: how often it is rounded follows from the size of what
 * travels (tensor_flow.h). So does Adasum, whose weights are those of one tensor. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

/* More would make a message wait for too many. */
enum { MOST_NAMES = 4096 };

/* Of a slot whose names do not travel together. */
#define APART UINT64_MAX

static uint64_t bytes_of(const TensorRequest *request)
{
    return tensor_request_values(request) * rubato_dtype_size(request->dtype);
}

static bool suits(const TensorExchange *exchange, const TensorRequest *request)
{
    return request->operation == TENSOR_ALLREDUCE &&
           request->reduce.compression == RUBATO_COMPRESSION_NONE &&
           request->reduce.reduction != RUBATO_REDUCTION_ADASUM &&
           bytes_of(request) < exchange->place.fusion_bytes;
}

bool fusion_suits(const TensorExchange *exchange, const TensorEntry *entry)
{
    return suits(exchange, &entry->part.request);
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

static bool fits(const TensorExchange *exchange, const TensorSet *set, const TensorRequest *request,
                 uint32_t n_names, uint64_t n_bytes)
{
    const Bundle *const bundle = &exchange->bundle;

    return bundle->set == set && bundle->n_names + n_names <= MOST_NAMES &&
           bundle->n_bytes + n_bytes <= exchange->place.fusion_bytes &&
           agree(&bundle->entries[0]->part.request, request);
}

bool fusion_fits(const TensorExchange *exchange, const TensorSet *set, const TensorEntry *entry)
{
    const TensorRequest *const request = &entry->part.request;

    return fits(exchange, set, request, 1, bytes_of(request));
}

/* Takes the entries. */
static void add(Bundle *bundle, const TensorSet *set, uint64_t number, uint32_t n_names,
                uint64_t n_bytes, TensorEntry **entries)
{
    const size_t n = (size_t)n_names * set->n_local;

    if (bundle->n_names == 0) {
        *bundle = (Bundle){ set, number, n_names, n_bytes, n, n, entries };
        return;
    }
    if (bundle->n_entries + n > bundle->n_room) {
        bundle->n_room = 2 * (bundle->n_entries + n);
        bundle->entries = g_renew(TensorEntry *, bundle->entries, bundle->n_room);
    }
    memcpy(bundle->entries + bundle->n_entries, entries, n * sizeof *entries);
    bundle->n_entries += n;
    bundle->n_names += n_names;
    bundle->n_bytes += n_bytes;
    g_free(entries);
}

void fusion_add(TensorExchange *exchange, const TensorSet *set, uint64_t number,
                TensorEntry **entries)
{
    add(&exchange->bundle, set, number, 1, bytes_of(&entries[0]->part.request), entries);
}

/* Requests of allreduces are the same for all workers but for what none of this looks at. */
static uint64_t bytes_together(const TensorExchange *exchange, const TensorSlot *slot)
{
    uint64_t n_bytes = 0;

    for (uint32_t i = 0; i < slot->n; i++) {
        const TensorRequest *const request = tensor_slot_request(slot, i, 0);

        if (!suits(exchange, request) || !agree(tensor_slot_request(slot, 0, 0), request))
            return APART;
        n_bytes += bytes_of(request);
    }
    return slot->n <= MOST_NAMES && n_bytes <= exchange->place.fusion_bytes ? n_bytes : APART;
}

bool fusion_suits_slot(const TensorExchange *exchange, const TensorSet *set, TensorSlot *slot)
{
    if (slot->together_bytes == 0 && set->n_local > 0)
        slot->together_bytes = bytes_together(exchange, slot);
    return slot->together_bytes != APART;
}

bool fusion_fits_slot(const TensorExchange *exchange, const TensorSet *set, const TensorSlot *slot)
{
    return fits(exchange, set, tensor_slot_request(slot, 0, 0), slot->n, slot->together_bytes);
}

void fusion_add_slot(TensorExchange *exchange, const TensorSet *set, uint64_t number,
                     const TensorSlot *slot, TensorEntry **entries)
{
    add(&exchange->bundle, set, number, slot->n, slot->together_bytes, entries);
}

bool fusion_take(TensorExchange *exchange, Decided *decided)
{
    Bundle *const bundle = &exchange->bundle;

    if (bundle->n_names == 0)
        return false;
    *decided = (Decided){ .set = bundle->set,
                          .number = bundle->number,
                          .n_names = bundle->n_names,
                          .entries = bundle->entries };
    *bundle = (Bundle){ 0 };
    return true;
}
