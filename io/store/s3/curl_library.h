/* The library libcurl, which is loaded by processes whose snapshots are in S3: no other program
 * needs it, and what it needs itself.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_S3_CURL_LIBRARY_H
#define RUBATO_IO_STORE_S3_CURL_LIBRARY_H

#include <glib.h>

/* Its macros check types at each call, and would hide the members below. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* The functions that are called. */
#define CURL_FUNCTIONS(DO) \
    DO(curl_global_init)   \
    DO(curl_easy_init)     \
    DO(curl_easy_cleanup)  \
    DO(curl_easy_reset)    \
    DO(curl_easy_setopt)   \
    DO(curl_easy_perform)  \
    DO(curl_easy_getinfo)  \
    DO(curl_easy_strerror) \
    DO(curl_slist_append)  \
    DO(curl_slist_free_all)

typedef struct {
#define CURL_POINTER(name) __typeof__(&name) name;
    CURL_FUNCTIONS(CURL_POINTER)
#undef CURL_POINTER
} CurlLibrary;

/* Loads it, if it is not loaded yet. NULL with RUBATO_ERROR_CONFIG. It stays loaded. (transfer
 * none) */
const CurlLibrary *curl_library_load(GError **error);

#endif
