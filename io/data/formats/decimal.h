/* Numbers in text: decimal only, whatever the locale.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_FORMATS_DECIMAL_H
#define RUBATO_IO_DATA_FORMATS_DECIMAL_H

#include <stdint.h>

typedef enum {
    DECIMAL_OK,
    DECIMAL_NO_NUMBER, /* no digits where the number should be */
    DECIMAL_TOO_LARGE, /* beyond what the type holds */
} DecimalStatus;

/* Both read a number from text and set *end behind it. Somewhere behind the number the text must
 * have a byte that cannot belong to a number, such as a newline. */

/* Digits alone. */
DecimalStatus decimal_read_key(const char *text, const char **end, uint64_t *number);

/* [+-] digits [. digits] [e [+-] digits]; digits on one side of the point are enough. A number that
 * is too small becomes 0. */
DecimalStatus decimal_read_float(const char *text, const char **end, float *number);

#endif
