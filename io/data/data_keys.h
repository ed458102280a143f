/* What keys mean: copies, and the comparison of a spec's wishes with the files.
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

/* Whether rows are of the wanted format, which is seen before their files, and hashed as wanted,
 * which is seen after them; columns the format sees to. MISMATCH, of the file at `path`. */
bool data_keys_check_format(const RubatoDataKeys *wanted, const char *format, const char *path,
                            GError **error);
bool data_keys_check_hashes(const RubatoDataKeys *wanted, const RubatoDataKeys *found,
                            const char *path, GError **error);

#endif
