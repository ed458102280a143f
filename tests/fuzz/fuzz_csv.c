/* Gives the CSV format arbitrary text; the first byte says how its columns are to be read. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const numbers[] = { "1", "2", NULL }, *const names[] = { "a", "1", NULL };
    static const char *const labels[] = { NULL, "", "0", "y" };
    const uint8_t how = size > 0 ? data[0] : 0;
    const RubatoDataSpec spec = { .format = "csv",
                                  .separator = how & 0x80 ? ';' : 0,
                                  .header = (RubatoCsvHeader)(how % 3),
                                  .label_column = labels[how >> 2 & 3],
                                  .categorical_columns = how & 0x10   ? numbers
                                                         : how & 0x20 ? names
                                                                      : NULL,
                                  .categories = how & 0x40 ? RUBATO_CATEGORIES_CODED
                                                           : RUBATO_CATEGORIES_HASHED };

    if (size > 0)
        fuzz_rows(&spec, data + 1, size - 1);
    return 0;
}
