/* Bytes of a file or of memory, in order.
 *
 * zlib reads plain files and gzipped ones alike; only this file knows zlib. Runs on the caller's
 * thread. Either `file` or `memory` is set. */
#include "io/data/byte_source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define BUFFER_BYTES (256u * 1024u)
#define READ_MAX_BYTES (1u << 30)

/* Deflate packs at most 258 bytes into two bits. */
#define UNPACKING_MAX 1032u

struct ByteSource {
    char *name;
    uint64_t limit;
    gzFile file;
    const uint8_t *memory;
    size_t memory_size;
    size_t at; /* bytes given out */
};

ByteSource *byte_source_open(const char *path, GError **error)
{
    struct stat status;

    if (stat(path, &status) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be opened: %s", path,
                    g_strerror(errno));
        return NULL;
    }
    if (S_ISDIR(status.st_mode)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: is a directory; name a file", path);
        return NULL;
    }

    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be opened: %s", path,
                    g_strerror(errno != 0 ? errno : ENOMEM));
        return NULL;
    }
    gzbuffer(file, BUFFER_BYTES);

    ByteSource *source = g_new0(ByteSource, 1);
    source->name = g_strdup(path);
    source->file = file;
    source->limit = S_ISREG(status.st_mode) ? (uint64_t)status.st_size * UNPACKING_MAX : UINT64_MAX;
    return source;
}

ByteSource *byte_source_new_memory(const char *name, const void *bytes, size_t size)
{
    ByteSource *source = g_new0(ByteSource, 1);

    source->name = g_strdup(name);
    source->memory = bytes;
    source->memory_size = size;
    source->limit = size;
    return source;
}

void byte_source_free(ByteSource *source)
{
    if (source == NULL)
        return;
    if (source->file != NULL)
        gzclose(source->file);
    g_free(source->name);
    g_free(source);
}

const char *byte_source_name(const ByteSource *source)
{
    return source->name;
}

uint64_t byte_source_limit(const ByteSource *source)
{
    return source->limit;
}

/* zlib gives what it could unpack and tells of a stream that ends too early only when asked. */
static bool check_file(ByteSource *source, GError **error)
{
    int code = Z_OK;
    int read_errno = errno;
    const char *text = gzerror(source->file, &code);

    if (code == Z_OK || code == Z_STREAM_END)
        return true;
    if (code == Z_ERRNO)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", source->name,
                    g_strerror(read_errno));
    else if (code == Z_BUF_ERROR)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: byte %zu: the gzip stream ends here, too early; the file is truncated",
                    source->name, source->at);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: near byte %zu: the gzip stream is damaged (%s)", source->name, source->at,
                    text);
    return false;
}

bool byte_source_read(ByteSource *source, void *buffer, size_t size, size_t *got, GError **error)
{
    size_t done = 0;

    if (source->file == NULL) {
        done = MIN(size, source->memory_size - source->at);
        if (done > 0)
            memcpy(buffer, source->memory + source->at, done);
        source->at += done;
        *got = done;
        return true;
    }

    while (done < size) {
        const unsigned want = (unsigned)MIN(size - done, READ_MAX_BYTES);

        errno = 0;
        const int n = gzread(source->file, (uint8_t *)buffer + done, want);
        if (n > 0) {
            done += (size_t)n;
            source->at += (size_t)n;
        }
        if (n < (int)want) {
            if (!check_file(source, error))
                return false;
            break;
        }
    }
    *got = done;
    return true;
}
