/* Bytes of a file or of memory, in order.
 *
 * A file's first bytes are read at once to see how it is packed. A file that is not packed is then
 * read straight into the caller's buffer. Runs on the caller's thread. Either `fd` or `memory` is
 * set. */
#include "io/data/input/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/data/input/unpacker.h"

#define BUFFER_BYTES ((size_t)256 * 1024)
#define READ_MAX_BYTES ((size_t)1 << 30)

struct ByteSource {
    char *name;
    uint64_t limit;
    int fd; /* -1: memory */
    const uint8_t *memory;
    size_t memory_size;
    size_t at; /* bytes given out */

    uint8_t *input; /* what was read from the file and not yet used */
    size_t input_at, input_size;
    bool input_ended;
    Unpacker *unpacker; /* NULL: not packed */
};

static bool fail_to_open(const char *path, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be opened: %s", path, why);
    return false;
}

/* Reads until there are `size` bytes or the file ends. */
static bool read_file(ByteSource *source, uint8_t *buffer, size_t size, size_t *got, GError **error)
{
    size_t done = 0;

    while (done < size && !source->input_ended) {
        const ssize_t n = read(source->fd, buffer + done, MIN(size - done, READ_MAX_BYTES));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s",
                        source->name, g_strerror(errno));
            return false;
        }
        source->input_ended = n == 0;
        done += (size_t)n;
    }
    *got = done;
    return true;
}

/* Opens the file, and sees how it is packed. */
static bool open_file(ByteSource *source, GError **error)
{
    struct stat status;

    source->fd = open(source->name, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 || fstat(source->fd, &status) != 0)
        return fail_to_open(source->name, g_strerror(errno), error);
    if (S_ISDIR(status.st_mode)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: is a directory; name a file",
                    source->name);
        return false;
    }
    source->input = g_malloc(BUFFER_BYTES);
    if (!read_file(source, source->input, UNPACKER_MAGIC_BYTES, &source->input_size, error))
        return false;
    if (!unpacker_new(source->input, source->input_size, &source->unpacker))
        return fail_to_open(source->name, "no memory to unpack it", error);
    source->limit = !S_ISREG(status.st_mode) ? UINT64_MAX : (uint64_t)status.st_size;
    if (source->unpacker != NULL && S_ISREG(status.st_mode))
        source->limit *= unpacker_ratio_max(source->unpacker);
    return true;
}

ByteSource *byte_source_open(const char *path, GError **error)
{
    g_autoptr(ByteSource) source = g_new0(ByteSource, 1);

    source->name = g_strdup(path);
    source->fd = -1;
    return open_file(source, error) ? g_steal_pointer(&source) : NULL;
}

ByteSource *byte_source_new_memory(const char *name, const void *bytes, size_t size)
{
    ByteSource *source = g_new0(ByteSource, 1);

    source->name = g_strdup(name);
    source->fd = -1;
    source->memory = bytes;
    source->memory_size = size;
    source->limit = size;
    return source;
}

void byte_source_free(ByteSource *source)
{
    if (source == NULL)
        return;
    if (source->fd >= 0)
        close(source->fd);
    unpacker_free(source->unpacker);
    g_free(source->input);
    g_free(source->name);
    g_free(source);
}

const char *byte_source_name(const ByteSource *source)
{
    return source->name;
}

bool byte_source_is_packed(const ByteSource *source)
{
    return source->unpacker != NULL;
}

uint64_t byte_source_limit(const ByteSource *source)
{
    return source->limit;
}

/* The bytes in memory, or those that were read to see how the file is packed. */
static size_t take(const uint8_t *from, size_t size, void *buffer, size_t wanted)
{
    const size_t n = MIN(size, wanted);

    if (n > 0)
        memcpy(buffer, from, n);
    return n;
}

static bool read_plain(ByteSource *source, uint8_t *buffer, size_t size, size_t *got,
                       GError **error)
{
    const size_t n =
        take(source->input + source->input_at, source->input_size - source->input_at, buffer, size);

    source->input_at += n;
    if (!read_file(source, buffer + n, size - n, got, error))
        return false;
    *got += n;
    return true;
}

/* Says why a packed stream cannot continue. */
static bool fail_to_unpack(const ByteSource *source, UnpackerStatus status, GError **error)
{
    const char *packing = unpacker_name(source->unpacker);

    if (status == UNPACKER_NO_MEMORY)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "%s: near byte %zu: no memory to unpack the %s stream", source->name,
                    source->at, packing);
    else if (status == UNPACKER_DAMAGED)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: near byte %zu: the %s stream is damaged (%s)", source->name, source->at,
                    packing, unpacker_fault(source->unpacker));
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: byte %zu: the %s stream ends here, too early; the file is truncated",
                    source->name, source->at, packing);
    return false;
}

static bool read_packed(ByteSource *source, uint8_t *buffer, size_t size, size_t *got,
                        GError **error)
{
    UnpackerBuffers buffers = { .out = buffer, .out_size = size };

    while (buffers.out_size > 0) {
        UnpackerStatus status;
        size_t out_before = buffers.out_size;

        if (source->input_at == source->input_size && !source->input_ended) {
            source->input_at = 0;
            if (!read_file(source, source->input, BUFFER_BYTES, &source->input_size, error))
                return false;
        }
        buffers.in = source->input + source->input_at;
        buffers.in_size = source->input_size - source->input_at;
        if (buffers.in_size == 0 && unpacker_is_whole(source->unpacker))
            break;
        status = unpacker_run(source->unpacker, &buffers);
        source->input_at = source->input_size - buffers.in_size;
        source->at += out_before - buffers.out_size;
        if (status != UNPACKER_GOES_ON ||
            (buffers.in_size == 0 && source->input_ended && buffers.out_size == out_before &&
             !unpacker_is_whole(source->unpacker)))
            return fail_to_unpack(source, status, error);
    }
    *got = size - buffers.out_size;
    return true;
}

bool byte_source_read(ByteSource *source, void *buffer, size_t size, size_t *got, GError **error)
{
    if (source->unpacker != NULL)
        return read_packed(source, buffer, size, got, error);
    if (source->fd >= 0) {
        if (!read_plain(source, buffer, size, got, error))
            return false;
    } else {
        *got = take(source->memory + source->at, source->memory_size - source->at, buffer, size);
    }
    source->at += *got;
    return true;
}
