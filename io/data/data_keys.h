/* What keys mean: copies, and the comparison of what a spec asks for with the files.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_DATA_DATA_KEYS_H
#define RUBATO_IO_DATA_DATA_KEYS_H

#include <rubato/data.h>

/* NULL is allowed. (transfer full) */
RubatoDataKeys *data_keys_copy(const RubatoDataKeys *keys);

/* NULL is allowed. */
void data_keys_free(RubatoDataKeys *keys);

/* Whether a spec's keys are possible: the columns that they number exist. INVALID. */
bool data_keys_check(const RubatoDataSpec *spec, GError **error);

/* Checks that rows have the wanted format, which is known before their files are read, and that
 * keys are made in the wanted way, which is known afterwards. The format itself checks columns.
 * MISMATCH, of the file at `path`. */
bool data_keys_check_format(const RubatoDataKeys *wanted, const char *format, const char *path,
                            GError **error);
bool data_keys_check_way(const RubatoDataKeys *wanted, const RubatoDataKeys *found,
                         const char *path, GError **error);

#endif
