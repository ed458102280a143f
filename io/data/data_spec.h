/* Copies of a RubatoDataSpec.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_DATA_DATA_SPEC_H
#define RUBATO_IO_DATA_DATA_SPEC_H

#include <rubato/data.h>

/* With defaults filled in, and globs replaced by the files that they name, sorted. INVALID,
 * NOT_FOUND. (transfer full) */
RubatoDataSpec *data_spec_copy(const RubatoDataSpec *spec, GError **error);

/* NULL is allowed. */
void data_spec_free(RubatoDataSpec *spec);

/* Everything that decides which rows a file holds, in words, without the file's name. (transfer
 * full) */
char *data_spec_describe(const RubatoDataSpec *spec);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoDataSpec, data_spec_free)

#endif
