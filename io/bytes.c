/* Readers and writers of bytes.
 *
 * Threads: as rubato/bytes.h says. */
#include <rubato/bytes.h>

#include <rubato/error.h>
#include <string.h>

/* Numbers are written as they are in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

enum { FIRST_BYTES = 256 };

/* ---- reading ---- */

RubatoByteReader rubato_byte_reader_new(const void *bytes, size_t n)
{
    return (RubatoByteReader){ .at = bytes, .left = n };
}

RubatoByteReader rubato_byte_reader_of(GBytes *bytes)
{
    gsize n;
    const void *at = g_bytes_get_data(bytes, &n);

    return rubato_byte_reader_new(at, n);
}

const void *rubato_read_bytes(RubatoByteReader *reader, size_t n)
{
    const void *bytes = reader->at;

    if (reader->failed || n > reader->left) {
        reader->failed = true;
        return NULL;
    }
    if (n > 0)
        reader->at += n;
    reader->left -= n;
    return bytes;
}

bool rubato_read(RubatoByteReader *reader, void *to, size_t n)
{
    const void *from = rubato_read_bytes(reader, n);

    if (reader->failed)
        memset(to, 0, n);
    else if (n > 0)
        memcpy(to, from, n);
    return !reader->failed;
}

#define DEFINE_READ(suffix, type)                       \
    type rubato_read_##suffix(RubatoByteReader *reader) \
    {                                                   \
        type value;                                     \
                                                        \
        rubato_read(reader, &value, sizeof value);      \
        return value;                                   \
    }

DEFINE_READ(u32, uint32_t)
DEFINE_READ(u64, uint64_t)
DEFINE_READ(i64, int64_t)
DEFINE_READ(f64, double)

size_t rubato_byte_reader_left(const RubatoByteReader *reader)
{
    return reader->failed ? 0 : reader->left;
}

bool rubato_byte_reader_finish(const RubatoByteReader *reader, const char *what, GError **error)
{
    if (!reader->failed && reader->left == 0)
        return true;
    if (reader->failed)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s came too short", what);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s came with %zu bytes too many",
                    what, reader->left);
    return false;
}

/* ---- writing ---- */

RubatoByteWriter rubato_byte_writer_new(size_t most)
{
    return (RubatoByteWriter){ .most = most };
}

void rubato_byte_writer_clear(RubatoByteWriter *writer)
{
    g_free(writer->bytes);
    *writer = (RubatoByteWriter){ 0 };
}

static bool allocate(RubatoByteWriter *writer, size_t wanted)
{
    unsigned char *const bytes = g_try_realloc(writer->bytes, wanted);

    if (bytes == NULL)
        return false;
    writer->bytes = bytes;
    writer->n_allocated = wanted;
    return true;
}

/* The memory doubles, so that many small writes cost little. */
static bool make_room(RubatoByteWriter *writer, size_t n)
{
    size_t wanted = writer->n + n;

    if (wanted <= writer->n_allocated)
        return true;
    if (wanted < FIRST_BYTES)
        wanted = FIRST_BYTES;
    else if (wanted < 2 * writer->n_allocated)
        wanted = 2 * writer->n_allocated;
    return allocate(writer, wanted);
}

bool rubato_byte_writer_reserve(RubatoByteWriter *writer, size_t n)
{
    if (writer->failed || n > writer->most - writer->n ||
        (writer->n + n > writer->n_allocated && !allocate(writer, writer->n + n)))
        writer->failed = true;
    return !writer->failed;
}

bool rubato_write(RubatoByteWriter *writer, const void *from, size_t n)
{
    if (writer->failed || n > writer->most - writer->n || !make_room(writer, n)) {
        writer->failed = true;
        return false;
    }
    if (n > 0)
        memcpy(writer->bytes + writer->n, from, n);
    writer->n += n;
    return true;
}

#define DEFINE_WRITE(suffix, type)                                   \
    bool rubato_write_##suffix(RubatoByteWriter *writer, type value) \
    {                                                                \
        return rubato_write(writer, &value, sizeof value);           \
    }

DEFINE_WRITE(u32, uint32_t)
DEFINE_WRITE(u64, uint64_t)
DEFINE_WRITE(i64, int64_t)
DEFINE_WRITE(f64, double)
