/* What does not fit into a bound of memory, in a file without a name: blocks are appended, and read
 * back once each. The file is made when the first block comes, and is gone with the process.
 *
 * Threads: any, at the same time; but free when nobody uses it any more. */
#ifndef RUBATO_IO_STORE_SPILL_FILE_H
#define RUBATO_IO_STORE_SPILL_FILE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct SpillFile SpillFile;

/* The prefix of its name, which a crash may leave. */
#define SPILL_FILE_PREFIX ".spill-"

/* directory: where the file is made. (transfer full) */
SpillFile *spill_file_new(const char *directory, uint64_t most_bytes);
void spill_file_free(SpillFile *spill); /* NULL is allowed */

uint64_t spill_file_most_bytes(const SpillFile *spill);

/* Counts bytes that stay in memory. False: they are beyond the bound, and are not counted. */
bool spill_file_reserve(SpillFile *spill, size_t n);
void spill_file_release(SpillFile *spill, size_t n);

/* Appends n bytes. False: the disk does not take them. */
bool spill_file_write(SpillFile *spill, const void *bytes, size_t n, uint64_t *offset);

/* Reads what was written. */
bool spill_file_read(SpillFile *spill, uint64_t offset, void *bytes, size_t n);

#endif
