/* The models, storages, update rules, handlers, admissions, expiries and kinds of streams that the
 * program has registered, beside the built-in ones.
 *
 * There is one registry in a process. Entries stay, and none is added while the process has an
 * engine. So all lookups in an engine's life find the same.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_REGISTRY_H
#define RUBATO_MODELS_REGISTRY_H

#include <rubato/plugin.h>

typedef enum {
    REGISTRY_MODELS,
    REGISTRY_STORAGES,
    REGISTRY_UPDATE_RULES,
    REGISTRY_HANDLERS,
    REGISTRY_ADMISSIONS,
    REGISTRY_EXPIRIES,
    REGISTRY_STREAMS,
    REGISTRY_N_KINDS,
} RegistryKind;

/* The ops of that name; NULL if none are registered. */
const void *registry_find(RegistryKind kind, const char *name);

/* The name of number i; NULL past the last. */
const char *registry_name(RegistryKind kind, size_t i);

/* An engine begins, and ends. */
void registry_hold(void);
void registry_release(void);

/* All entries, a line each: kind, name, and a digest of the traits. Sorted, so equal for equal
 * registries; "" for nothing. (transfer full) */
char *registry_describe(void);

/* How two descriptions differ, in words: "node 3 has the model quorum, the scheduler has not". NULL
 * if they are equal. Lines of another form are compared as text. (transfer full) */
char *registry_compare(const char *theirs, const char *their_name, const char *ours,
                       const char *our_name);

#endif
