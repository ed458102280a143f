/* The update rules that there are.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_UPDATE_UPDATE_H
#define RUBATO_MODELS_UPDATE_UPDATE_H

#include <rubato/update_ops.h>

/* NULL for an unknown name. */
const RubatoUpdateOps *update_find(const char *name);

/* The name of the i-th rule, NULL past the last. */
const char *update_name(size_t i);

#endif
