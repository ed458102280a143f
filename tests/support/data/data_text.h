/* Rows from a text in a test.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_DATA_DATA_TEXT_H
#define TESTS_SUPPORT_DATA_DATA_TEXT_H

#include <rubato/data.h>

/* Removes a folder of files. */
void remove_files(const char *dir);

/* Writes the text to a file, loads the file by the spec, which has no paths, and removes it. In an
 * error the file's name is "rows". (transfer full) */
RubatoRows *load_text(const RubatoDataSpec *spec, const void *text, size_t size, GError **error);

/* The same for a string that must be good. (transfer full) */
RubatoRows *load_good(const RubatoDataSpec *spec, const char *text);

/* A row's label and its n entries. */
void check_row(const RubatoRows *rows, size_t row, float label, size_t n, const RubatoKey *keys,
               const uint32_t *fields, const float *values);

/* A text that must be refused with RUBATO_ERROR_FORMAT and a message that begins like this. */
void check_refused(const RubatoDataSpec *spec, const void *text, size_t size, const char *message);

#endif
