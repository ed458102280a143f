/* 64 bits that nobody can guess, from the kernel.
 *
 * Threads: any. May wait while the machine starts, until the kernel has random bits. */
#ifndef RUBATO_IO_KERNEL_RANDOM_H
#define RUBATO_IO_KERNEL_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* False with errno, and nothing written: the kernel gives none. */
bool kernel_random(uint64_t *bits);

#endif
