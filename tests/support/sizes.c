/* See sizes.h. */
#include "tests/support/sizes.h"

#include <stdlib.h>
#include <string.h>

const FlowSizes *test_sizes(void)
{
    static const FlowSizes small = { .piece_bytes = 1 << 10,
                                     .near_piece_bytes = 1 << 10,
                                     .worth_sending_bytes = 2 << 10,
                                     .joined_bytes = 2 << 10,
                                     .turn_bytes = 4 << 10,
                                     .window_bytes = 4 << 10,
                                     .out_bytes =
                                         512 << 10, /* below it waits for late acknowledgements */
                                     .mailbox_bytes = 4 << 10,
                                     .cache_bytes = 4 << 10 };
    static const FlowSizes usual = FLOW_SIZES_USUAL;
    const char *const wanted = getenv("RUBATO_TEST_SIZES");

    return wanted != NULL && strcmp(wanted, "small") == 0 ? &small : &usual;
}
