/* Whole numbers from text. Runs on any thread, keeps nothing. */
#include "io/number_text.h"

#include <glib.h>

bool number_text_read(const char *text, uint64_t lowest, uint64_t highest, uint64_t *number)
{
    uint64_t read = 0;

    if (*text == '\0')
        return false;
    for (; g_ascii_isdigit(*text); text++)
        if (__builtin_mul_overflow(read, 10, &read) ||
            __builtin_add_overflow(read, (uint64_t)(*text - '0'), &read))
            return false;
    if (*text != '\0' || read < lowest || read > highest)
        return false;
    *number = read;
    return true;
}
