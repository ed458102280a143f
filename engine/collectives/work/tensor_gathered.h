/* Memory for what workers gather.
 *
 * The size of a result is known only once all have called, and its caller frees it. Fresh memory
 * is cleared by the kernel, page by page, at the first access, and that takes longer than what is
 * then copied to it. So large results lie in huge pages, which need one fault instead of 512, and a
 * task keeps a bounded part of those that were freed for the next ones of about the same size:
 * tasks gather the same each iteration.
 *
 * Threads: any. A result is freed on any thread, also behind the end of its task. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_GATHERED_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_GATHERED_H

#include <rubato/collectives.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TENSOR_GATHERED_LARGE_BYTES = 4 << 20, /* from here on: huge pages, which are kept */
    TENSOR_GATHERED_KEPT_BYTES = 256 << 20 /* at most, by the workers of a task on a node */
};

/* What a task on this node keeps. */
typedef struct TensorGatheredPool TensorGatheredPool;

TensorGatheredPool *tensor_gathered_pool_new(void);

/* The task has ended: frees what is kept. Results that are freed later are not kept any more; the
 * last one frees the pool. */
void tensor_gathered_pool_close(TensorGatheredPool *pool);

/* Bytes that are kept. */
uint64_t tensor_gathered_pool_bytes(TensorGatheredPool *pool);

/* Allocates result->values, of n_bytes, which is not 0; what they are is not said. The caller frees
 * them with rubato_gathered_clear, or takes them out for g_free. pool NULL: nothing is kept. False:
 * there is no memory, and result is as it was. */
bool tensor_gathered_allocate(TensorGatheredPool *pool, RubatoGathered *result, uint64_t n_bytes);

#endif
