/* Loads plug-in files: shared objects that register what they hold.
 *
 * Threads: any. */
#include <dlfcn.h>
#include <rubato/error.h>
#include <rubato/plugin.h>
#include <string.h>

/* A file in the present folder need not be written with "./". (transfer full) */
static char *resolve_path(const char *path)
{
    return strchr(path, '/') == NULL && g_file_test(path, G_FILE_TEST_EXISTS)
               ? g_strconcat("./", path, NULL)
               : g_strdup(path);
}

#define SYMBOL "rubato_plugin_register"
#define VERSIONED SYMBOL "_%u"

enum { MOST_VERSIONS = 100 };

/* The version of a plug-in whose function this library does not find. Before version 1, the name
 * had none. False: it is no plug-in. */
static bool find_version(void *module, uint32_t *version)
{
    for (uint32_t i = 0; i < MOST_VERSIONS; i++) {
        g_autofree char *name = g_strdup_printf(VERSIONED, i);

        if (dlsym(module, i == 0 ? SYMBOL : name) != NULL) {
            *version = i;
            return true;
        }
    }
    return false;
}

static void refuse_file(void *module, const char *path, GError **error)
{
    uint32_t version;

    if (find_version(module, &version))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "the plug-in %s was compiled for version %u of plug-ins, and this library has "
                    "version %u; compile it with the headers of this library",
                    path, version, RUBATO_PLUGIN_VERSION);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "%s is no plug-in: it does not define rubato_plugin_register", path);
}

bool rubato_load_plugin(const char *path, GError **error)
{
    bool (*register_all)(GError * *error);
    GError *fault = NULL;

    g_return_val_if_fail(path != NULL, false);
    g_autofree char *resolved = resolve_path(path);
    /* It stays, since the registry will point into it; and its symbols are its own, since each
     * plug-in defines rubato_plugin_register. */
    void *module = dlopen(resolved, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (module == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "cannot load the plug-in %s: %s",
                    path, dlerror());
        return false;
    }
    g_autofree char *name = g_strdup_printf(VERSIONED, RUBATO_PLUGIN_VERSION);
    void *symbol = dlsym(module, name);
    if (symbol == NULL) {
        refuse_file(module, path, error);
        dlclose(module);
        return false;
    }
    memcpy(&register_all, &symbol, sizeof register_all); /* C has no such cast */
    const bool registered = register_all(&fault);
    dlclose(module);
    if (registered)
        return true;
    if (fault == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: its rubato_plugin_register has failed without saying why", path);
    else
        g_propagate_prefixed_error(error, fault, "%s: ", path);
    return false;
}
