/* A binary heap of requests.
 *
 * Thread: the shard's present owner. The order is total, because no two requests arrive at once. So
 * it does not depend on the heap's shape. */
#include "models/request_heap.h"

#include <assert.h>

static bool tunes(const RequestHeapEntry *entry)
{
    return entry->request->kind == RUBATO_REQUEST_TUNE;
}

static bool comes_before(const RequestHeapEntry *a, const RequestHeapEntry *b)
{
    if (a->request->clock != b->request->clock)
        return a->request->clock < b->request->clock;
    if (tunes(a) != tunes(b))
        return tunes(a);
    if (a->request->worker != b->request->worker)
        return a->request->worker < b->request->worker;
    return a->arrival < b->arrival;
}

static bool ensure_room(RequestHeap *heap)
{
    const size_t n = heap->n_allocated == 0 ? 16 : heap->n_allocated * 2;
    RequestHeapEntry *entries;

    if (heap->n < heap->n_allocated)
        return true;
    entries = g_try_renew(RequestHeapEntry, heap->entries, n);
    if (entries == NULL)
        return false;
    heap->entries = entries;
    heap->n_allocated = n;
    return true;
}

bool request_heap_push(RequestHeap *heap, RubatoRequest *request)
{
    const RequestHeapEntry entry = { .request = request, .arrival = heap->n_arrived };
    size_t hole = heap->n;

    if (!ensure_room(heap))
        return false;
    heap->n_arrived++;
    heap->n++;
    while (hole > 0 && comes_before(&entry, &heap->entries[(hole - 1) / 2])) {
        heap->entries[hole] = heap->entries[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap->entries[hole] = entry;
    return true;
}

RubatoRequest *request_heap_first(const RequestHeap *heap)
{
    return heap->n == 0 ? NULL : heap->entries[0].request;
}

RubatoRequest *request_heap_pop(RequestHeap *heap)
{
    if (heap->n == 0)
        return NULL;

    RubatoRequest *first = heap->entries[0].request;
    const RequestHeapEntry last = heap->entries[--heap->n];
    size_t hole = 0;

    for (size_t child = 1; child < heap->n; child = 2 * hole + 1) {
        if (child + 1 < heap->n && comes_before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!comes_before(&heap->entries[child], &last))
            break;
        heap->entries[hole] = heap->entries[child];
        hole = child;
    }
    if (heap->n > 0)
        heap->entries[hole] = last;
    return first;
}

void request_heap_clear(RequestHeap *heap)
{
    assert(heap->n == 0);
    g_free(heap->entries);
    *heap = (RequestHeap){ 0 };
}
