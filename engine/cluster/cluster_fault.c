/* One function; no state beyond the call. */
#include "engine/cluster/cluster_fault.h"

#include <rubato/error.h>
#include <stdarg.h>

bool cluster_refuse(const ClusterFaults *faults, unsigned line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(faults->error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, "%s:%u: %s", faults->path, line,
                message);
    return false;
}
