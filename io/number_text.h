/* Whole numbers from text. */
#ifndef RUBATO_IO_NUMBER_TEXT_H
#define RUBATO_IO_NUMBER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Reads decimal digits up to the end of the text, and nothing else. False, with *number as it was,
 * if that is no number from lowest to highest.
 *
 * g_ascii_string_to_unsigned is not for several threads: its first call in a process may wait for
 * the first call of another thread, and takes the errno of this wait for a fault of the number.
 *
 * Threads: any. */
bool number_text_read(const char *text, uint64_t lowest, uint64_t highest, uint64_t *number);

#endif
