/* What of collectives goes into the timeline of the node: see tensor_exchange_private.h.
 *
 * Each worker's part in an operation is recorded for each of its tensors. Of the workers here, the
 * one that asked first has waited longest; its record has a tick for each that came. */
#include "engine/collectives/tensor_exchange_private.h"

/* The one that asked first; NULL: none, or nothing was recorded then. */
static const TensorEntry *first_to_ask(TensorEntry *const *entries, uint32_t n)
{
    const TensorEntry *first = NULL;

    for (uint32_t i = 0; i < n; i++)
        if (entries[i] != NULL && entries[i]->asked_ns != 0 &&
            (first == NULL || entries[i]->asked_ns < first->asked_ns))
            first = entries[i];
    return first;
}

static void note_entry(const TensorExchange *exchange, const Operation *operation,
                       const TensorEntry *entry, uint64_t number, uint64_t ended_ns,
                       const TimelineTick *ticks, uint32_t n_ticks)
{
    const TensorRequest *const request = &entry->part.request;

    timeline_note_operation(
        exchange->place.timeline,
        &(TimelineOperation){ .actor = { exchange->place.epoch, entry->rank },
                              .operation = tensor_operation_name(request->operation),
                              .name = entry->name,
                              .set = entry->set,
                              .n_together = operation->n_names,
                              .number = number,
                              .n_bytes = tensor_request_values(request) *
                                         rubato_dtype_size(request->dtype),
                              .has_failed = operation->error != NULL,
                              .asked_ns = entry->asked_ns,
                              .decided_ns = operation->decided_ns,
                              .begun_ns = operation->begun_ns != 0 ? operation->begun_ns : ended_ns,
                              .ended_ns = ended_ns,
                              .ticks = ticks,
                              .n_ticks = n_ticks });
}

void operation_note(const TensorExchange *exchange, const Operation *operation)
{
    const uint32_t n = operation->n_entries / operation->n_names; /* workers here */
    g_autofree TimelineTick *ticks = g_new(TimelineTick, n);
    const uint64_t ended_ns = (uint64_t)monotonic_ns();

    for (uint32_t k = 0; k < operation->n_names; k++) {
        TensorEntry *const *const entries = operation->entries + (size_t)k * n;
        const TensorEntry *const first = first_to_ask(entries, n);
        uint32_t n_ticks = 0;

        for (uint32_t i = 0; i < n; i++)
            if (entries[i] != NULL && entries[i]->asked_ns != 0)
                ticks[n_ticks++] = (TimelineTick){ entries[i]->rank, entries[i]->asked_ns };
        for (uint32_t i = 0; i < n; i++)
            if (entries[i] != NULL && entries[i]->asked_ns != 0)
                note_entry(exchange, operation, entries[i], operation->number + k, ended_ns, ticks,
                           entries[i] == first ? n_ticks : 0);
    }
}

void tensor_exchange_note_call(const TensorExchange *exchange, const TensorEntry *entries, size_t n)
{
    timeline_note_call(exchange->place.timeline,
                       &(TimelineCall){
                           .actor = { exchange->place.epoch, entries->rank },
                           .what = tensor_operation_name(entries->part.request.operation),
                           .subject = entries->name,
                           .begun_ns = entries->asked_ns,
                           .ended_ns = (uint64_t)monotonic_ns(),
                           .numbers = { { n > 1 ? "tensors" : NULL, n } },
                       });
}
