/* Addresses within a host. */
#define _GNU_SOURCE
#include "io/net/transport/tcp/host_address.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rubato/error.h>

#define IDENTITY_DIGITS 16

static uint64_t namespace_of(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (uint64_t)status.st_ino : 0;
}

char *host_identity(void)
{
    g_autofree char *boot = NULL;

    if (!g_file_get_contents("/proc/sys/kernel/random/boot_id", &boot, NULL, NULL))
        boot = g_strdup(g_get_host_name());
    g_autofree char *text =
        g_strdup_printf("%s %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %lu", boot,
                        namespace_of("/proc/self/ns/net"), namespace_of("/proc/self/ns/user"),
                        (unsigned long)geteuid());
    char *const identity = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    identity[IDENTITY_DIGITS] = '\0';
    return identity;
}

static bool is_name(const char *text)
{
    const size_t length = strlen(text);

    return length > 0 && length <= HOST_NAME_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

bool host_address_split(const char *scheme, const char *identity, const char *endpoint,
                        bool for_binding, char **name, GError **error)
{
    const size_t n = strlen(scheme);
    const bool fits = g_str_has_prefix(endpoint, scheme) && g_str_has_prefix(endpoint + n, "://");
    const char *const host = fits ? endpoint + n + 3 : "";
    const char *const slash = strchr(host, '/');

    if (for_binding && strcmp(host, "*") == 0) {
        g_autofree char *uuid = g_uuid_string_random();
        *name = g_strconcat("rubato-", uuid, NULL);
        return true;
    }
    if (slash == NULL || slash == host || !is_name(slash + 1)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "\"%s\" is no address: write %s://HOST/NAME, or %s://* to listen at a name "
                    "that nobody has",
                    endpoint, scheme, scheme);
        return false;
    }
    if ((size_t)(slash - host) != strlen(identity) ||
        strncmp(host, identity, strlen(identity)) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s is on another host than this process, or in another container, or of "
                    "another user: this one would be %s://%s/NAME",
                    endpoint, scheme, identity);
        return false;
    }
    *name = g_strdup(slash + 1);
    return true;
}

char *host_address_join(const char *scheme, const char *identity, const char *name)
{
    return g_strdup_printf("%s://%s/%s", scheme, identity, name);
}
