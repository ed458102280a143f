/* The plug-ins that a cluster file names.
 *
 * Threads: any. */
#include <rubato/plugin.h>

#include "engine/cluster/cluster_file.h"

bool rubato_load_plugins_of(const char *cluster_file, GError **error)
{
    g_return_val_if_fail(cluster_file != NULL, false);

    g_autoptr(Cluster) cluster = cluster_read(cluster_file, error);

    if (cluster == NULL)
        return false;
    for (char **path = cluster->plugins; path != NULL && *path != NULL; path++)
        if (!rubato_load_plugin(*path, error)) {
            g_prefix_error(error, "%s: 'plugins': ", cluster->path);
            return false;
        }
    return true;
}
