/* NumPy's array files, version 1.0 as numpy.lib.format documents it: little-endian, C order, one or
 * two dimensions.
 *
 * Threads: a reader from one at a time. */
#ifndef RUBATO_APPS_KIT_MODEL_APP_NPY_H
#define RUBATO_APPS_KIT_MODEL_APP_NPY_H

#include <rubato/rubato.h>
#include <stdio.h>

#define APP_NPY_KEYS "<u8" /* the descr of an array of keys */

/* "<f4" and the like. (transfer none) */
const char *app_npy_descr(RubatoDtype dtype);

/* Writes the header; the values follow row by row. n_dimensions is 1 or 2. ferror tells whether it
 * was written. */
void app_npy_write_header(FILE *file, const char *descr, unsigned n_dimensions,
                          const uint64_t *shape);

typedef struct {
    char *path;
    FILE *file; /* at the next value */
    char descr[8];
    unsigned n_dimensions;
    uint64_t shape[2];
} AppNpy;

/* Opens a file and reads its header. The file has as many bytes as its shape asks for.
 * RUBATO_ERROR_IO, or RUBATO_ERROR_FORMAT with what was expected. (transfer full) */
AppNpy *app_npy_open(const char *path, GError **error);
void app_npy_free(AppNpy *npy);

/* Whether it holds values of this kind in this shape; RUBATO_ERROR_FORMAT tells both. */
bool app_npy_check(const AppNpy *npy, const char *descr, unsigned n_dimensions,
                   const uint64_t *shape, GError **error);

/* Reads the next n_bytes of values. */
bool app_npy_read(AppNpy *npy, void *values, size_t n_bytes, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppNpy, app_npy_free)

#endif
