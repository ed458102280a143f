/* A plug-in file that was compiled with the headers of another version. */
#include <rubato/plugin.h>
#undef rubato_plugin_register

RUBATO_PLUGIN bool rubato_plugin_register_1(GError **error);

bool rubato_plugin_register_1(GError **error)
{
    (void)error;
    return true;
}
