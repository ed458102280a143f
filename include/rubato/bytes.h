/* Bytes that a program reads and writes: the arguments and results of handlers.
 *
 * A reader goes over bytes that somebody else wrote, and never past their end. A read past the end
 * gives zero, and the reader remembers it. So one call of rubato_byte_reader_finish after all reads
 * checks all of them. Do not trust a count before that call: compare it with
 * rubato_byte_reader_left. A writer grows. It leaves out what has no room, and remembers that.
 *
 * Numbers are little-endian and follow one another without padding.
 *
 * Threads: a reader and a writer belong to one thread. */
#ifndef RUBATO_BYTES_H
#define RUBATO_BYTES_H

#include <rubato/types.h>

G_BEGIN_DECLS

/* The caller owns the bytes and keeps them until the last read. */
typedef struct {
    const unsigned char *at;
    size_t left;
    bool failed; /* more was read than there was */
} RubatoByteReader;

/* bytes may be NULL if n is 0. */
RUBATO_API RubatoByteReader rubato_byte_reader_new(const void *bytes, size_t n);
RUBATO_API RubatoByteReader rubato_byte_reader_of(GBytes *bytes);

/* Copies the next n bytes. If there are fewer, it returns false and writes zeros; then all later
 * reads fail too. */
RUBATO_API bool rubato_read(RubatoByteReader *reader, void *to, size_t n);

RUBATO_API uint32_t rubato_read_u32(RubatoByteReader *reader);
RUBATO_API uint64_t rubato_read_u64(RubatoByteReader *reader);
RUBATO_API int64_t rubato_read_i64(RubatoByteReader *reader);
RUBATO_API double rubato_read_f64(RubatoByteReader *reader);

/* The next n bytes, not copied, at any alignment; NULL if there are fewer. (transfer none) */
RUBATO_API const void *rubato_read_bytes(RubatoByteReader *reader, size_t n);

/* How many bytes are not read yet. */
RUBATO_API size_t rubato_byte_reader_left(const RubatoByteReader *reader);

/* Whether every read found its bytes, and none are left. Otherwise false with RUBATO_ERROR_FORMAT,
 * whose text begins with `what`, such as "the arguments". */
RUBATO_API bool rubato_byte_reader_finish(const RubatoByteReader *reader, const char *what,
                                          GError **error);

typedef struct {
    unsigned char *bytes;
    size_t n;           /* bytes written */
    size_t n_allocated; /* for the writer itself */
    size_t most;        /* how many bytes it takes at most */
    bool failed;        /* more was written than that, or there was no memory */
} RubatoByteWriter;

/* A writer that takes up to `most` bytes; SIZE_MAX: as many as fit into memory. Free what it holds
 * with rubato_byte_writer_clear. */
RUBATO_API RubatoByteWriter rubato_byte_writer_new(size_t most);
RUBATO_API void rubato_byte_writer_clear(RubatoByteWriter *writer);

/* Makes room for n more bytes at once, so that later writes need not copy what was written before.
 * If there is no memory for them, it returns false; then all later writes fail too. */
RUBATO_API bool rubato_byte_writer_reserve(RubatoByteWriter *writer, size_t n);

/* Appends n bytes. If there is no room for them, it returns false and appends none of them; then
 * all later writes fail too. */
RUBATO_API bool rubato_write(RubatoByteWriter *writer, const void *from, size_t n);

RUBATO_API bool rubato_write_u32(RubatoByteWriter *writer, uint32_t value);
RUBATO_API bool rubato_write_u64(RubatoByteWriter *writer, uint64_t value);
RUBATO_API bool rubato_write_i64(RubatoByteWriter *writer, int64_t value);
RUBATO_API bool rubato_write_f64(RubatoByteWriter *writer, double value);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RubatoByteWriter, rubato_byte_writer_clear)

G_END_DECLS

#endif
