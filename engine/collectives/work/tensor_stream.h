/* Copies that write past the caches, for large arrays: a line of memory that is written as a whole
 * need not be read before, and pushes nothing out of a cache. Who reads what was written finds it
 * in memory.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_STREAM_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Outputs of so many bytes and more are no use in a cache: it is about what the second one has, and
 * inputs take as much. */
#define TENSOR_STREAM_BYTES ((uint64_t)1 << 20)

/* The arrays do not overlap. Behind the last copy belongs tensor_stream_end. */
static inline void tensor_stream(void *to, const void *from, size_t n)
{
#if defined(__SSE2__)
    enum { LINE = 64, VECTOR = 16 };
    const size_t before = -(uintptr_t)to % LINE;

    if (n >= before + LINE) {
        char *at = to;
        const char *of = from;

        memcpy(at, of, before); /* whole lines alone need not be read */
        at += before;
        of += before;
        n -= before;
        for (; n >= LINE; n -= LINE, at += LINE, of += LINE)
            for (size_t i = 0; i < LINE; i += VECTOR)
                _mm_stream_si128((__m128i *)(void *)(at + i),
                                 _mm_loadu_si128((const __m128i *)(const void *)(of + i)));
        to = at;
        from = of;
    }
#endif
    memcpy(to, from, n);
}

/* What was written comes before all stores that follow; a release alone does not order it. */
static inline void tensor_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
