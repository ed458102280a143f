/* The source of a reader's bytes: a file, plain or packed by gzip or zstd, or memory. A file's
 * first bytes show how it is packed; its name does not matter.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_DATA_INPUT_BYTE_SOURCE_H
#define RUBATO_IO_DATA_INPUT_BYTE_SOURCE_H

#include <rubato/error.h>

typedef struct ByteSource ByteSource;

/* RUBATO_ERROR_IO if the file cannot be opened. (transfer full) */
ByteSource *byte_source_open(const char *path, GError **error);

/* The caller keeps the bytes until the source is freed; messages call the source `name`. (transfer
 * full) */
ByteSource *byte_source_new_memory(const char *name, const void *bytes, size_t size);

void byte_source_free(ByteSource *source);

/* The name of the source in messages. (transfer none) */
const char *byte_source_name(const ByteSource *source);

bool byte_source_is_packed(const ByteSource *source);

/* The largest number of unpacked bytes that it can give; UINT64_MAX if unknown. */
uint64_t byte_source_limit(const ByteSource *source);

/* Reads up to `size` bytes; *got is fewer only at the end. A packed stream that is damaged or ends
 * too early is RUBATO_ERROR_FORMAT. */
bool byte_source_read(ByteSource *source, void *buffer, size_t size, size_t *got, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(ByteSource, byte_source_free)

#endif
