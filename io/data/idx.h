/* The IDX reader behind rubato_images_load, on any source of bytes.
 *
 * Threads: any; a source from one at a time. */
#ifndef RUBATO_IO_DATA_IDX_H
#define RUBATO_IO_DATA_IDX_H

#include <rubato/data.h>

#include "io/data/byte_source.h"

/* labels may be NULL. (transfer full) */
RubatoImages *idx_read_images(ByteSource *images, ByteSource *labels, GError **error);

#endif
