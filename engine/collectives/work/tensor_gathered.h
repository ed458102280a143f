/* Memory for what workers gather.
 *
 * It is fresh for each operation, since the caller frees it. So the kernel clears it first, page by
 * page; large arrays ask for huge pages, which need one fault instead of 512.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_GATHERED_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_GATHERED_H

#include <stddef.h>
#include <stdint.h>

/* For g_free. n_bytes is not 0. NULL: there is no memory. */
void *tensor_gathered_new(uint64_t n_bytes);

#endif
