/* See sizes.h. */
#include "tests/support/sizes.h"

#include <stdlib.h>
#include <string.h>

const FlowSizes *small_sizes(void)
{
    static const FlowSizes small = { .piece_bytes = 1 << 10,
                                     .near_piece_bytes = 1 << 10,
                                     .high_piece_bytes = 512,
                                     .near_high_piece_bytes = 512,
                                     .worth_sending_bytes = 2 << 10,
                                     .joined_bytes = 2 << 10,
                                     .turn_bytes = 4 << 10,
                                     .window_bytes = 4 << 10,
                                     /* with less it waits for late acknowledgements */
                                     .out_bytes = 512 << 10,
                                     .high_out_bytes = 512 << 10,
                                     .near_high_out_bytes = 512 << 10,
                                     .mailbox_bytes = 4 << 10,
                                     .ticket_bytes = 4 << 10,
                                     .cache_bytes = 4 << 10 };

    return &small;
}

const FlowSizes *test_sizes(void)
{
    static const FlowSizes usual = FLOW_SIZES_USUAL;
    const char *const wanted = getenv("RUBATO_TEST_SIZES");

    return wanted != NULL && strcmp(wanted, "small") == 0 ? small_sizes() : &usual;
}
