/* libcurl, loaded. */
#ifdef RUBATO_HAS_CURL

#include "io/store/s3/curl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rubato/error.h>
#include <stdbool.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CurlLibrary library; /* guarded by lock until is_loaded */
static bool is_loaded;

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
    void *const handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;

    if (handle == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "cannot load libcurl, which s3:// needs: %s", dlerror());
        return false;
    }
#define CURL_FIND(name)                               \
    if (!find_function(handle, #name, &library.name)) \
        missing = #name;
    CURL_FUNCTIONS(CURL_FIND)
#undef CURL_FIND
    if (missing == NULL && library.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        missing = "way to begin";
    if (missing != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "this machine's libcurl has no %s, which s3:// needs", missing);
    return missing == NULL;
}

const CurlLibrary *curl_library_load(GError **error)
{
    bool found;

    pthread_mutex_lock(&lock);
    is_loaded = is_loaded || load(error);
    found = is_loaded;
    pthread_mutex_unlock(&lock);
    return found ? &library : NULL;
}

#endif
