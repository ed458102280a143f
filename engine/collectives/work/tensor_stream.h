/* Copies of values that are in no cache.
 *
 * For large arrays they write past the caches: a line of memory that is written as a whole need not
 * be read before, and pushes nothing out of a cache. Who reads what was written finds it in memory.
 *
 * They read several runs of lines at a time. A processor fetches lines that follow one another
 * early, but not beyond a page, and so has fewer lines on their way than it could: with one run a
 * copy from memory to memory took 1.2 to 1.4 times as long.
 *
 * What another processor reads is written to lines that are still in its cache. There a processor
 * whose string move takes whole lines over unread is the faster by that move: see
 * tensor_stream_moves.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_STREAM_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Outputs of so many bytes and more are no use in a cache: it is about what the second one has, and
 * inputs take as much. */
#define TENSOR_STREAM_BYTES ((uint64_t)1 << 20)

#if defined(__SSE2__)
enum { TENSOR_STREAM_LINE = 64, TENSOR_STREAM_RUN = 4096, TENSOR_STREAM_RUNS = 4 };

/* Copies a line, at the same place of all arrays. */
static inline __attribute__((always_inline)) void tensor_stream_line(char *near, char *far,
                                                                     const char *from, size_t at)
{
    enum { VECTOR = 16 };

    for (size_t i = at; i < at + TENSOR_STREAM_LINE; i += VECTOR) {
        const __m128i values = _mm_loadu_si128((const __m128i *)(const void *)(from + i));

        if (near != NULL)
            _mm_storeu_si128((__m128i *)(void *)(near + i), values);
        if (far != NULL)
            _mm_stream_si128((__m128i *)(void *)(far + i), values);
    }
}

/* Copies whole lines to one array or to both; NULL: not to this one. Lines of far begin there.
 * Returns how many bytes these are. */
static inline __attribute__((always_inline)) size_t tensor_stream_lines(char *near, char *far,
                                                                        const char *from, size_t n)
{
    enum { BLOCK = TENSOR_STREAM_RUN * TENSOR_STREAM_RUNS };
    size_t at = 0;

    for (; n - at >= BLOCK; at += BLOCK)
        for (size_t i = 0; i < TENSOR_STREAM_RUN; i += TENSOR_STREAM_LINE)
            for (size_t run = 0; run < BLOCK; run += TENSOR_STREAM_RUN)
                tensor_stream_line(near, far, from, at + run + i);
    for (; n - at >= TENSOR_STREAM_LINE; at += TENSOR_STREAM_LINE)
        tensor_stream_line(near, far, from, at);
    return at;
}

/* Bytes before the first line of an array, of n. */
static inline size_t tensor_stream_before(const void *far, size_t n)
{
    const size_t before = -(uintptr_t)far % TENSOR_STREAM_LINE;

    return before < n ? before : n;
}
#endif

/* Whether memcpy, which is a string move for arrays of some KB, is the best way to write lines that
 * another processor's cache has. With AMD's processors a store waits until that cache has given the
 * line up, and so does each behind it; the move asks for whole lines alone, many at a time. Between
 * two cores that need .7 us for a word and its answer it copied 12 to 14 GB/s, stores 5 to 7 (EPYC
 * of the fifth generation); between cores that need .16 us both 14 to 17. */
static inline bool tensor_stream_moves(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

/* Copies past the caches. The arrays do not overlap, here and below. Behind the last copy belongs
 * tensor_stream_end. */
static inline void tensor_stream(void *to, const void *from, size_t n)
{
    size_t done = 0;

#if defined(__SSE2__)
    done = tensor_stream_before(to, n);
    memcpy(to, from, done); /* whole lines alone need not be read */
    done += tensor_stream_lines(NULL, (char *)to + done, (const char *)from + done, n - done);
#endif
    memcpy((char *)to + done, (const char *)from + done, n - done);
}

/* Copies to an array that is read soon, also by another processor, and stays in the caches. */
static inline void tensor_stream_near(void *near, const void *from, size_t n)
{
    size_t done = 0;

    if (tensor_stream_moves()) {
        memcpy(near, from, n);
        return;
    }
#if defined(__SSE2__)
    done = tensor_stream_lines(near, NULL, from, n);
#endif
    memcpy((char *)near + done, (const char *)from + done, n - done);
}

/* Does both line by line, and reads the values once. */
static inline void tensor_stream_both_by_lines(void *near, void *far, const void *from, size_t n)
{
    size_t done = 0;

#if defined(__SSE2__)
    done = tensor_stream_before(far, n);
    memcpy(near, from, done);
    memcpy(far, from, done);
    done += tensor_stream_lines((char *)near + done, (char *)far + done, (const char *)from + done,
                                n - done);
#endif
    memcpy((char *)near + done, (const char *)from + done, n - done);
    memcpy((char *)far + done, (const char *)from + done, n - done);
}

/* Does both, and reads the values once from memory. */
static inline void tensor_stream_both(void *near, void *far, const void *from, size_t n)
{
    enum { BLOCK = 16 << 10 }; /* stays in the first cache */

    if (!tensor_stream_moves()) {
        tensor_stream_both_by_lines(near, far, from, n);
        return;
    }
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < BLOCK ? n - done : BLOCK;
        memcpy((char *)near + done, (const char *)from + done, some);
        tensor_stream((char *)far + done, (const char *)from + done, some);
    }
}

/* What was written comes before all stores that follow; a release alone does not order it. */
static inline void tensor_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
