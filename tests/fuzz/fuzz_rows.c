/* Gives the small formats arbitrary text; the first byte says which. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const RubatoDataSpec specs[] = {
        { .format = "ratings" },      { .format = "ratings", .separator = ';' },
        { .format = "bag_of_words" }, { .format = "text", .words_per_row = 3 },
        { .format = "idx" },
    };

    if (size > 0)
        fuzz_rows(&specs[data[0] % G_N_ELEMENTS(specs)], data + 1, size - 1);
    return 0;
}
