/* Copies to memory that nobody reads soon.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_SHARD_FAR_COPY_H
#define RUBATO_MODELS_SHARD_FAR_COPY_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Fewer bytes may as well stay in the cache. */
#define FAR_COPY_BYTES ((size_t)128 << 10)

/* As memcpy. Many bytes go past the caches: a third of the time, because the processor does not
 * fetch lines first that are overwritten as a whole. */
static inline void far_copy(unsigned char *to, const unsigned char *from, size_t n)
{
#ifdef __SSE2__
    if (n >= FAR_COPY_BYTES) {
        const size_t n_first = -(uintptr_t)to % sizeof(__m128i);
        size_t done = n_first;

        memcpy(to, from, n_first);
        for (; n - done >= 4 * sizeof(__m128i); done += 4 * sizeof(__m128i)) {
            const __m128i *const source = (const __m128i *)(const void *)(from + done);
            __m128i *const place = (__m128i *)(void *)(to + done);
            const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
            const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);

            _mm_stream_si128(place, a);
            _mm_stream_si128(place + 1, b);
            _mm_stream_si128(place + 2, c);
            _mm_stream_si128(place + 3, d);
        }
        _mm_sfence(); /* other threads see these bytes no later than what follows */
        memcpy(to + done, from + done, n - done);
        return;
    }
#endif
    memcpy(to, from, n);
}

#endif
