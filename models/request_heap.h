/* Requests that wait for a clock, in this order: by clock; changes of hyper-parameters first; by
 * worker; by arrival.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_REQUEST_HEAP_H
#define RUBATO_MODELS_REQUEST_HEAP_H

#include <rubato/request.h>

typedef struct {
    RubatoRequest *request;
    uint64_t arrival;
} RequestHeapEntry;

/* All zero: empty. */
typedef struct {
    RequestHeapEntry *entries; /* a binary heap, its root at 0 */
    size_t n;
    size_t n_allocated;
    uint64_t n_arrived;
} RequestHeap;

/* False, and nothing is changed, if there is no memory. */
bool request_heap_push(RequestHeap *heap, RubatoRequest *request);

/* The first request, NULL if there is none. It stays in the heap. */
RubatoRequest *request_heap_first(const RequestHeap *heap);

/* Takes the first request out; NULL if there is none. */
RubatoRequest *request_heap_pop(RequestHeap *heap);

/* Frees the heap's own memory. It must be empty. */
void request_heap_clear(RequestHeap *heap);

#endif
