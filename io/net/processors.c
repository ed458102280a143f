/* The number is the same for all engines of a process, so it is kept here, not in one of them. */
#include "io/net/processors.h"

#include <glib.h>
#include <stdatomic.h>

uint32_t processors_count(void)
{
    static _Atomic uint32_t count; /* 0: nobody has asked */
    /* relaxed: the number is all that is passed on. Threads that ask at the same time may all ask
     * the system, and each stores a number that is good. */
    uint32_t n = atomic_load_explicit(&count, memory_order_relaxed);

    if (n == 0) {
        n = g_get_num_processors();
        atomic_store_explicit(&count, n, memory_order_relaxed);
    }
    return n;
}
