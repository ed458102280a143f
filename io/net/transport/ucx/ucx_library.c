#include "io/net/transport/ucx/ucx_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rubato/error.h>
#include <signal.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static UcxLibrary library; /* guarded by lock until is_loaded */
static bool is_loaded;

/* UCX handles these when it is loaded. They are the program's. */
static const int signals[] = { SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP };

static void *open_library(void)
{
    struct sigaction before[G_N_ELEMENTS(signals)];

    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], NULL, &before[i]);
    void *const handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], &before[i], NULL);
    return handle;
}

/* What UCX would print to standard output. Its errors are told by whoever called it. */
static ucs_log_func_rc_t take_line(const char *file, unsigned line, const char *function,
                                   ucs_log_level_t level,
                                   const ucs_log_component_config_t *component, const char *format,
                                   va_list arguments)
{
    g_autofree char *text = g_strdup_vprintf(format, arguments);

    (void)line;
    (void)function;
    (void)component;
    if (level == UCS_LOG_LEVEL_FATAL)
        g_critical("UCX: %s (%s)", text, file);
    else
        g_debug("UCX: %s (%s)", text, file);
    return UCS_LOG_FUNC_RC_STOP;
}

/* POSIX lets a pointer to data become one to a function; C does not. */
static bool find_function(void *handle, const char *name, void *function)
{
    void *const address = dlsym(handle, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* The lock is held. */
static bool load(GError **error)
{
    void *const handle = open_library();
    const char *missing = NULL;

    if (handle == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "cannot load UCX, which the transport \"ucx\" needs: %s", dlerror());
        return false;
    }
#define UCX_FIND(name)                                \
    if (!find_function(handle, #name, &library.name)) \
        missing = #name;
    UCX_FUNCTIONS(UCX_FIND)
#undef UCX_FIND
    if (missing != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "this machine's UCX has no function %s, which the transport \"ucx\" needs",
                    missing);
    else
        library.ucs_log_push_handler(take_line);
    return missing == NULL;
}

const UcxLibrary *ucx_library_load(GError **error)
{
    pthread_mutex_lock(&lock);
    is_loaded = is_loaded || load(error);
    const bool found = is_loaded;
    pthread_mutex_unlock(&lock);
    return found ? &library : NULL;
}
