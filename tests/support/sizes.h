/* The sizes of the engines that tests make: the usual ones, or small ones if the environment has
 * RUBATO_TEST_SIZES=small. With small ones, a request of some hundred keys is cut into pieces and
 * fills its window, so limits that usually take megabytes are reached in every case.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_SIZES_H
#define TESTS_SUPPORT_SIZES_H

#include "io/net/flow_sizes.h"

const FlowSizes *test_sizes(void);

/* The small ones, whatever the environment says. */
const FlowSizes *small_sizes(void);

#endif
