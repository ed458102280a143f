/* NumPy's array files, version 1.0 as numpy.lib.format documents it: little-endian, C order, one or
 * two dimensions.
 *
 * Errors: RUBATO_ERROR_IO, or RUBATO_ERROR_FORMAT with what was expected; both name the file.
 *
 * Threads: a reader belongs to one at a time. */
#ifndef RUBATO_NPY_H
#define RUBATO_NPY_H

#include <rubato/error.h>

G_BEGIN_DECLS

#define RUBATO_NPY_KEYS "<u8" /* the descr of an array of keys */

/* "<f4", "<f8", "<i4" or "<i8"; NULL for all other types. (transfer none) */
RUBATO_API const char *rubato_npy_descr(RubatoDtype dtype);

/* What a file begins with, n_bytes long; the values follow row by row. n_dimensions is 1 or 2.
 * (transfer full) */
RUBATO_API char *rubato_npy_header(const char *descr, unsigned n_dimensions, const uint64_t *shape,
                                   size_t *n_bytes);

/* A file that is read. */
typedef struct {
    char *path;
    void *file; /* the library's, at the next value */
    char descr[8];
    unsigned n_dimensions;
    uint64_t shape[2];
} RubatoNpy;

/* Opens a file and reads its header. The file has as many bytes as its shape asks for.
 * (transfer full) */
RUBATO_API RubatoNpy *rubato_npy_open(const char *path, GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_npy_free(RubatoNpy *npy);

/* Whether it holds values of this kind in this shape; RUBATO_ERROR_FORMAT tells both. */
RUBATO_API bool rubato_npy_check(const RubatoNpy *npy, const char *descr, unsigned n_dimensions,
                                 const uint64_t *shape, GError **error);

/* Reads the next n_bytes of values. */
RUBATO_API bool rubato_npy_read(RubatoNpy *npy, void *values, size_t n_bytes, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoNpy, rubato_npy_free)

G_END_DECLS

#endif
