/* Gives the CSV format arbitrary text; the first byte decides how its columns are read. */
#include "tests/fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const numbers[] = { "1", "2", NULL }, *const names[] = { "a", "1", NULL };
    static const char *const labels[] = { NULL, "", "0", "y" };
    static const char *const columns[] = { "y", "a", "b", NULL };
    static const uint32_t first[] = { 1 };
    static const RubatoDataKeys keys = { .format = "csv",
                                         .hash_bits = 64,
                                         .n_columns = 3,
                                         .column_names = columns,
                                         .n_categorical_columns = 1,
                                         .categorical_columns = first };
    const uint8_t how = size > 0 ? data[0] : 0;
    const bool of_model = how % 5 == 4 && (how & 0x40) == 0;
    const RubatoDataSpec spec = { .format = "csv",
                                  .separator = how & 0x80 ? ';' : 0,
                                  .header = (RubatoCsvHeader)(how % 3),
                                  .label_column = labels[how >> 2 & 3],
                                  .skip_labels = of_model,
                                  .keys = of_model ? &keys : NULL,
                                  .categorical_columns = how & 0x10   ? numbers
                                                         : how & 0x20 ? names
                                                                      : NULL,
                                  .categories = how & 0x40 ? RUBATO_CATEGORIES_CODED
                                                           : RUBATO_CATEGORIES_HASHED };

    if (size > 0)
        fuzz_rows(&spec, data + 1, size - 1);
    return 0;
}
