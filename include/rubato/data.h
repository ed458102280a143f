/* Training data: images from IDX files, sparse rows from libsvm files, images made up on the spot.
 *
 * A dataset is read whole into memory, is one object that owns its arrays, and does not change
 * afterwards. Files may be gzipped. What is wrong with a file is told as RUBATO_ERROR_FORMAT with
 * the file and the place (libsvm: line and column, both from 1; IDX: byte offset, after unpacking)
 * and what was expected there; a file that cannot be opened or read is RUBATO_ERROR_IO, one that is
 * larger than the memory RUBATO_ERROR_MEMORY.
 *
 * Threads: the calls from any; a dataset may be read by any number of threads at once. */
#ifndef RUBATO_DATA_H
#define RUBATO_DATA_H

#include <rubato/error.h>

G_BEGIN_DECLS

/* Labelled grey images of one size. */
typedef struct {
    size_t n_images;
    uint32_t height, width;
    uint32_t n_classes;    /* one more than the largest label, 0 without labels */
    const uint8_t *pixels; /* n_images × height × width, row by row; 0 is black */
    const uint8_t *labels; /* n_images; NULL where there are none */
} RubatoImages;

/* Reads a pair of IDX files (the format of MNIST, described at the end of
 * http://yann.lecun.com/exdb/mnist): unsigned bytes in three dimensions, and in one.
 * Without a labels_path the images come without labels.
 * (transfer full) */
RUBATO_API RubatoImages *rubato_images_load(const char *images_path, const char *labels_path,
                                            GError **error);

/* Makes n_images images of 28 × 28 in ten classes, which a softmax regression can learn but not
 * perfectly. The classes follow from seed, image i from seed and first + i: the same seed and
 * another range of numbers give a test set. n_images is at least 1. (transfer full) */
RUBATO_API RubatoImages *rubato_images_generate(size_t n_images, uint64_t seed, uint64_t first,
                                                GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_images_free(RubatoImages *images);

/* Labelled sparse rows, compressed: row i has the entries row_start[i] .. row_start[i + 1] - 1. */
typedef struct {
    size_t n_rows;
    size_t n_entries;
    uint32_t n_columns;      /* the largest index there is; columns count from 1 as in the file */
    const size_t *row_start; /* n_rows + 1, the last is n_entries */
    const uint32_t *index;   /* n_entries, ascending within a row, 1 .. n_columns */
    const float *value;      /* n_entries */
    const float *label;      /* n_rows */
} RubatoSparseRows;

/* Reads a libsvm file: lines of `label index:value index:value …` with ascending indices from 1.
 * Empty lines and what follows a # are skipped. (transfer full) */
RUBATO_API RubatoSparseRows *rubato_libsvm_load(const char *path, GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_sparse_rows_free(RubatoSparseRows *rows);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoImages, rubato_images_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoSparseRows, rubato_sparse_rows_free)

G_END_DECLS

#endif
