/* Faults in a text of rows. Runs on the thread that parses. */
#include "io/data/formats/row_text.h"

#include <stdarg.h>

bool row_fault(RowFault *fault, const char *at, const char *expected, ...)
{
    va_list arguments;

    *fault = (RowFault){ .at = at };
    va_start(arguments, expected);
    g_vsnprintf(fault->expected, sizeof fault->expected, expected, arguments);
    va_end(arguments);
    return false;
}

bool row_fault_out_of_memory(RowFault *fault, const char *at)
{
    *fault = (RowFault){ .at = at, .out_of_memory = true };
    return false;
}

bool row_fault_number(RowFault *fault, const char *at, DecimalStatus status, const char *expected)
{
    return row_fault(fault, at, "%s",
                     status == DECIMAL_TOO_LARGE ? "a number within the range of a float"
                                                 : expected);
}
