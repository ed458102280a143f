/* The libsvm reader behind rubato_libsvm_load, on any source of bytes.
 *
 * Threads: any; a source from one at a time. */
#ifndef RUBATO_IO_DATA_LIBSVM_H
#define RUBATO_IO_DATA_LIBSVM_H

#include <rubato/data.h>

#include "io/data/byte_source.h"

/* (transfer full) */
RubatoSparseRows *libsvm_read(ByteSource *source, GError **error);

#endif
