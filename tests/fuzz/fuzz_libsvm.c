/* Gives the libsvm reader arbitrary text, and holds what it accepts against what it promises. */
#include "io/data/libsvm.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const RubatoSparseRows *rows, size_t size)
{
    /* A row takes two bytes at least, an entry four. */
    if (rows->n_rows == 0 || rows->n_rows > size || rows->n_entries > size / 3 ||
        rows->row_start[0] != 0 || rows->row_start[rows->n_rows] != rows->n_entries)
        abort();
    for (size_t i = 0; i < rows->n_rows; i++) {
        uint32_t last = 0;

        if (!isfinite(rows->label[i]) || rows->row_start[i] > rows->row_start[i + 1])
            abort();
        for (size_t k = rows->row_start[i]; k < rows->row_start[i + 1]; k++) {
            if (rows->index[k] <= last || rows->index[k] > rows->n_columns ||
                !isfinite(rows->value[k]))
                abort();
            last = rows->index[k];
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(ByteSource) source = byte_source_new_memory("input", data, size);
    g_autoptr(RubatoSparseRows) rows = libsvm_read(source, &error);

    if ((rows == NULL) != (error != NULL))
        abort();
    if (rows != NULL)
        check(rows, size);
    return 0;
}
