/* Bytes that a program reads and writes: the arguments and results of handlers.
 *
 * A reader goes over bytes that somebody else wrote, and never past their end. What is not there
 * reads as zero, and the reader remembers it; so one call of rubato_byte_reader_finish behind all
 * reads is check enough, as long as no count that was read is trusted before:
 * rubato_byte_reader_left bounds it. A writer grows; what has no room is left out, and the writer
 * remembers that.
 *
 * Numbers are little-endian and lie one behind the other, without padding.
 *
 * Threads: a reader and a writer belong to one thread. */
#ifndef RUBATO_BYTES_H
#define RUBATO_BYTES_H

#include <rubato/types.h>

G_BEGIN_DECLS

/* The bytes are the caller's, and stay until the last read. */
typedef struct {
    const unsigned char *at;
    size_t left;
    bool failed; /* it was asked for more than there was */
} RubatoByteReader;

/* bytes may be NULL if n is 0. */
RUBATO_API RubatoByteReader rubato_byte_reader_new(const void *bytes, size_t n);
RUBATO_API RubatoByteReader rubato_byte_reader_of(GBytes *bytes);

/* Copies the next n bytes. False, with zeros in their place, if there are not so many; from then on
 * nothing more can be read. */
RUBATO_API bool rubato_read(RubatoByteReader *reader, void *to, size_t n);

RUBATO_API uint32_t rubato_read_u32(RubatoByteReader *reader);
RUBATO_API uint64_t rubato_read_u64(RubatoByteReader *reader);
RUBATO_API int64_t rubato_read_i64(RubatoByteReader *reader);
RUBATO_API double rubato_read_f64(RubatoByteReader *reader);

/* The next n bytes where they lie, at any alignment; NULL if there are not so many.
 * (transfer none) */
RUBATO_API const void *rubato_read_bytes(RubatoByteReader *reader, size_t n);

/* How many bytes are not read yet. */
RUBATO_API size_t rubato_byte_reader_left(const RubatoByteReader *reader);

/* Whether everything that was asked for was there, and nothing is left. Otherwise
 * RUBATO_ERROR_FORMAT; `what` begins its text, such as "the arguments". */
RUBATO_API bool rubato_byte_reader_finish(const RubatoByteReader *reader, const char *what,
                                          GError **error);

typedef struct {
    unsigned char *bytes;
    size_t n;           /* written */
    size_t n_allocated; /* the writer's */
    size_t most;        /* bytes that it takes */
    bool failed;        /* it was given more than that, or there was no memory */
} RubatoByteWriter;

/* A writer that takes `most` bytes; SIZE_MAX: as many as there is memory for. Clear it in the
 * end. */
RUBATO_API RubatoByteWriter rubato_byte_writer_new(size_t most);
RUBATO_API void rubato_byte_writer_clear(RubatoByteWriter *writer);

/* Appends n bytes. False, and nothing is appended from then on, if there is no room for them. */
RUBATO_API bool rubato_write(RubatoByteWriter *writer, const void *from, size_t n);

RUBATO_API bool rubato_write_u32(RubatoByteWriter *writer, uint32_t value);
RUBATO_API bool rubato_write_u64(RubatoByteWriter *writer, uint64_t value);
RUBATO_API bool rubato_write_i64(RubatoByteWriter *writer, int64_t value);
RUBATO_API bool rubato_write_f64(RubatoByteWriter *writer, double value);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RubatoByteWriter, rubato_byte_writer_clear)

G_END_DECLS

#endif
