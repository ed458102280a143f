/* The suites that rubato-conformance runs over what is registered.
 *
 * Threads: main's, and there is no other. */
#ifndef RUBATO_APPS_CONFORMANCE_SUITES_H
#define RUBATO_APPS_CONFORMANCE_SUITES_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t first_seed;
    uint32_t n_seeds; /* of each thing */
} SuiteSeeds;

/* Models, storages or update rules. */
typedef struct {
    const char *name; /* "model" */

    /* The name of number i; NULL past the last. */
    const char *(*name_at)(size_t i);

    /* Runs the suite over the thing of that name. Appends what was asked, in words, to `asked`.
     * Returns the story of what does not hold, NULL if all does. (transfer full) */
    char *(*run)(const char *name, const SuiteSeeds *seeds, GString *asked);
} SuiteKind;

enum { SUITE_MODELS, SUITE_STORAGES, SUITE_RULES, SUITE_N_KINDS };

extern const SuiteKind suite_kinds[SUITE_N_KINDS];

#endif
