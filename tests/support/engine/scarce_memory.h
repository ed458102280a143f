/* Memory that runs out: allocations of the library fail, one or several in a row, from the number
 * that the test gives. Only those fail whose size comes from data; GLib ends the process if there
 * is no memory for others.
 *
 * A test that uses this is linked with scarce_memory_functions (tests/CMakeLists.txt): the linker
 * puts the functions here in place of the allocating ones.
 *
 * Threads: any; allocations fail in every thread of the process. */
#ifndef TESTS_SUPPORT_ENGINE_SCARCE_MEMORY_H
#define TESTS_SUPPORT_ENGINE_SCARCE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now on n allocations in a row fail, of those of at least so many bytes. The first of them is
 * number `first`, counted from 1. */
void scarce_memory_begin(size_t least_bytes, uint64_t first, uint64_t n);

/* From now on none fails. Whether one has failed. */
bool scarce_memory_end(void);

#endif
