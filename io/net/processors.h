/* How many processors the process may use.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_PROCESSORS_H
#define RUBATO_IO_NET_PROCESSORS_H

#include <stdint.h>

/* At least 1. The system is asked once in the life of a process: it reads a file to answer. */
uint32_t processors_count(void);

#endif
