/* Loops for the widest vectors that the processor has.
 *
 * A function marked RUBATO_VECTOR_CLONES is compiled for the plain processor, for AVX2 and for
 * AVX-512. The loader takes the widest that the machine can run. All of them give the same bits:
 * each adds and multiplies in the order of the source, and nothing is contracted, so a cluster of
 * different processors computes the same. That needs the compiler's option -ffp-contract=off.
 *
 * There are no clones for other processors. There are none under a sanitizer, because the loader
 * would run its code before it is ready; and none with clang, because it gives clones of static
 * functions public names.
 *
 * Threads: any. */
#ifndef RUBATO_VECTOR_CLONES_H
#define RUBATO_VECTOR_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(RUBATO_PLAIN_LOOPS)
#define RUBATO_VECTOR_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define RUBATO_VECTOR_CLONES
#endif

#endif
