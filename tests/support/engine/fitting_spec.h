/* For tests that loop over models, storages and initialisers with one spec. */
#ifndef RUBATO_TESTS_SUPPORT_ENGINE_FITTING_SPEC_H
#define RUBATO_TESTS_SUPPORT_ENGINE_FITTING_SPEC_H

#include <rubato/table.h>

/* The spec without the fields that have no effect under its model, storage and initialiser, which
 * the library refuses. */
RubatoTableSpec fitting_spec(RubatoTableSpec spec);

#endif
