/* Copies during which another array comes into the cache.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_WORK_TENSOR_FETCH_H
#define RUBATO_ENGINE_COLLECTIVES_WORK_TENSOR_FETCH_H

#include <stddef.h>
#include <string.h>

#include "engine/collectives/work/tensor_stream.h"

#define TENSOR_LINE_BYTES 64

/* Copies n bytes. As many of an array that is soon written come into the cache meanwhile: a
 * processor that waits for memory fetches lines of both in the time of one. The array is neither
 * read nor changed by it. */
static inline void tensor_copy_fetching(void *to, const void *from, size_t n, const void *fetched)
{
    char *at = to;
    const char *of = from, *line = fetched;

    if (tensor_stream_moves()) {
        for (size_t i = 0; i < n; i += TENSOR_LINE_BYTES)
            __builtin_prefetch(line + i, /* rw= */ 1);
        memcpy(to, from, n);
        return;
    }
    for (; n >= TENSOR_LINE_BYTES; n -= TENSOR_LINE_BYTES, at += TENSOR_LINE_BYTES,
                                   of += TENSOR_LINE_BYTES, line += TENSOR_LINE_BYTES) {
        __builtin_prefetch(line, /* rw= */ 1);
        memcpy(at, of, TENSOR_LINE_BYTES);
    }
    if (n > 0)
        __builtin_prefetch(line, /* rw= */ 1);
    memcpy(at, of, n);
}

#endif
