/* Which processors this process has bound threads to, so that other processes of this host notice
 * if theirs are bound to the same ones. A job system may give two nodes the same cores, and each of
 * them takes them for its own.
 *
 * Processors are bytes of a file that all processes of a user share, and a claim is a lock on them.
 * Locks end with their process, however it ends. A process that it has forked, and that has not
 * become another program, has them, too: they end with the last of both, unless the claim is freed
 * before.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_BINDING_CORE_CLAIM_H
#define RUBATO_ENGINE_BINDING_CORE_CLAIM_H

#include <glib.h>

typedef struct CoreClaim CoreClaim;

/* The file of this user on this host. (transfer full) */
char *core_claim_path(void);

/* Claims the processors of a list, "0-3,8". *taken gets those that another claim has, as such a
 * list, to be freed, or NULL if there are none. NULL if the file cannot be used: then nobody can
 * tell, and *taken is NULL. (transfer full) */
CoreClaim *core_claim_new(const char *path, const char *processors, char **taken);
void core_claim_free(CoreClaim *claim);

#endif
