/* The IDX reader behind rubato_images_load, on any source of bytes.
 *
 * Threads: any; a source from one at a time. */
#ifndef RUBATO_IO_DATA_FORMATS_IDX_FILE_H
#define RUBATO_IO_DATA_FORMATS_IDX_FILE_H

#include <rubato/data.h>

#include "io/data/formats/row_parser.h"
#include "io/data/input/byte_source.h"

#define IDX_DIMENSIONS_MAX 3
#define IDX_HEADER_BYTES_MAX (4 * (1 + IDX_DIMENSIONS_MAX))

typedef struct {
    uint32_t dimension[IDX_DIMENSIONS_MAX];
    size_t header_bytes;
    uint64_t n_values;
} IdxHeader;

/* Reads the header of unsigned bytes in so many dimensions, "images" or "labels", from the first
 * bytes of a file, at most IDX_HEADER_BYTES_MAX. */
bool idx_read_header(const char *bytes, size_t size, unsigned n_dimensions, const char *what,
                     IdxHeader *header, RowFault *fault);

/* (transfer full) */
uint8_t *idx_read_labels(ByteSource *source, size_t *n_labels, GError **error);

/* labels may be NULL. (transfer full) */
RubatoImages *idx_read_images(ByteSource *images, ByteSource *labels, GError **error);

#endif
