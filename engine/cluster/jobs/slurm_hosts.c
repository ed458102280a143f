/* The first host of a list of Slurm: see slurm_hosts.h. */
#include "engine/cluster/jobs/slurm_hosts.h"

#include <glib.h>
#include <string.h>

/* Copies what is in front of the first bracket, the first number of each pair of brackets, and what
 * is between and behind them, up to the first comma outside. */
char *slurm_first_host(const char *list)
{
    g_autoptr(GString) host = g_string_new(NULL);
    const char *at = list;

    while (*at != '\0' && *at != ',') {
        if (*at != '[') {
            g_string_append_c(host, *at++);
            continue;
        }
        const size_t n = strspn(++at, "0123456789");
        const char *const end = strchr(at, ']');

        if (n == 0 || end == NULL || strchr("-,]", at[n]) == NULL)
            return NULL;
        g_string_append_len(host, at, (gssize)n);
        at = end + 1;
    }
    if (host->len == 0 || strpbrk(host->str, "[] \t") != NULL)
        return NULL;
    return g_string_free(g_steal_pointer(&host), FALSE);
}
