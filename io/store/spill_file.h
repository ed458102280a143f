/* Blocks of memory up to a bound; and what does not fit into it, in a file without a name: blocks
 * are appended, and read back once each. The file is made when the first block comes, and is gone
 * with the process.
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

/* Blocks of n bytes, which count up to the bound. A block that is given back serves the next one
 * who asks for as many bytes, so that the kernel need not find pages anew; it counts until then.
 * False: another block would be beyond the bound. True with NULL: there is no memory. */
bool spill_file_take(SpillFile *spill, size_t n, void **block);
void spill_file_give_back(SpillFile *spill, void *block, size_t n);

/* Has at least n_blocks blocks of n bytes ready, as far as the bound goes: their pages are in
 * memory, so that who takes one need not wait for the kernel. n is the same in all calls. They
 * count, and stay until the end. Takes long: 0.1 ms for each MiB. */
void spill_file_warm(SpillFile *spill, size_t n, size_t n_blocks);

/* Has n bytes of zeros ready, in memory likewise, which count for no bound. The second function
 * takes what was made ready with the same n; NULL: there is none. They are given back by
 * huge_pages_free. (transfer full) */
void spill_file_warm_zeros(SpillFile *spill, size_t n);
void *spill_file_take_zeros(SpillFile *spill, size_t n);

/* Whether half of the bound, or more, is free or was given back. */
bool spill_file_has_half(SpillFile *spill);

/* The bytes of all blocks that were taken so far, and of those that were written to the file. */
uint64_t spill_file_taken_bytes(SpillFile *spill);

/* Appends n bytes. False: the disk does not take them. */
bool spill_file_write(SpillFile *spill, const void *bytes, size_t n, uint64_t *offset);

/* Reads what was written. */
bool spill_file_read(SpillFile *spill, uint64_t offset, void *bytes, size_t n);

/* What the disk has refused first, as "DIRECTORY: REASON"; NULL: nothing. (transfer full) */
char *spill_file_refusal(SpillFile *spill);

#endif
