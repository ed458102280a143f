/* Gives the libffm format arbitrary text. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rows(&(RubatoDataSpec){ .format = "libffm" }, data, size);
    return 0;
}
