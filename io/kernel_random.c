/* Random bits of the kernel: see kernel_random.h. */
#include "io/kernel_random.h"

#include <errno.h>
#include <sys/random.h>

bool kernel_random(uint64_t *bits)
{
    uint64_t drawn;
    ssize_t n;

    do
        n = getrandom(&drawn, sizeof drawn, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof drawn)
        return false;
    *bits = drawn;
    return true;
}
