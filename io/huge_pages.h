/* Memory in huge pages: whoever reads and writes all over it, or copies to it again and again, also
 * the kernel in read() and write(), needs few entries of the TLB.
 *
 * Threads: any. */
#ifndef RUBATO_IO_HUGE_PAGES_H
#define RUBATO_IO_HUGE_PAGES_H

#include <stddef.h>

/* Memory for n bytes, all zero. If that is a quarter of a huge page or more, it begins where a huge
 * page may, and has whole ones; whether the kernel gives them is up to it, and small pages do as
 * well, more slowly. Less has small pages. NULL: there is no memory. (transfer full) */
void *huge_pages_take(size_t n);

/* n: as it was taken. NULL is allowed. */
void huge_pages_free(void *memory, size_t n);

#endif
