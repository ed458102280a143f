/* A model that answers and applies at once, for tests that register one. Its name is "eager".
 *
 * Threads: as model_ops.h says. */
#ifndef TESTS_SUPPORT_ENGINE_EAGER_MODEL_H
#define TESTS_SUPPORT_ENGINE_EAGER_MODEL_H

#include <rubato/model_ops.h>

extern const RubatoModelOps eager_model;

#endif
