/* Unpacking. A stream is a sequence of gzip members or zstd frames, as both tools allow. Only this
 * file knows zlib and libzstd. Runs on the caller's thread. */
#include "io/data/input/unpacker.h"

#include <glib.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

/* Deflate packs at most 258 bytes into two bits. */
#define GZIP_RATIO_MAX 1032u
#define GZIP_WINDOW_BITS (15 + 16) /* zlib's largest window; 16 asks for gzip's head and tail */

/* A block of at most 128 KiB takes at least three bytes of head and one more. */
#define ZSTD_RATIO_MAX (ZSTD_BLOCKSIZE_MAX / 4u)

struct Unpacker {
    z_stream gzip;
    ZSTD_DCtx *zstd; /* NULL: it is gzip */
    bool is_whole;   /* between two members */
    const char *fault;
};

static bool begins_with(const uint8_t *head, size_t size, const char *magic, size_t magic_size)
{
    return size >= magic_size && memcmp(head, magic, magic_size) == 0;
}

bool unpacker_new(const uint8_t *head, size_t size, Unpacker **unpacker)
{
    const bool is_gzip = begins_with(head, size, "\x1f\x8b", 2);
    const bool is_zstd = begins_with(head, size, "\x28\xb5\x2f\xfd", 4);
    Unpacker *made;

    *unpacker = NULL;
    if (!is_gzip && !is_zstd)
        return true;
    made = g_new0(Unpacker, 1);
    if (is_zstd ? (made->zstd = ZSTD_createDCtx()) == NULL
                : inflateInit2(&made->gzip, GZIP_WINDOW_BITS) != Z_OK) {
        g_free(made);
        return false;
    }
    *unpacker = made;
    return true;
}

void unpacker_free(Unpacker *unpacker)
{
    if (unpacker == NULL)
        return;
    if (unpacker->zstd != NULL)
        ZSTD_freeDCtx(unpacker->zstd);
    else
        inflateEnd(&unpacker->gzip);
    g_free(unpacker);
}

const char *unpacker_name(const Unpacker *unpacker)
{
    return unpacker->zstd != NULL ? "zstd" : "gzip";
}

uint64_t unpacker_ratio_max(const Unpacker *unpacker)
{
    return unpacker->zstd != NULL ? ZSTD_RATIO_MAX : GZIP_RATIO_MAX;
}

static UnpackerStatus run_gzip(Unpacker *unpacker, UnpackerBuffers *buffers)
{
    z_stream *gzip = &unpacker->gzip;
    const uInt in_size = (uInt)MIN(buffers->in_size, UINT_MAX);
    const uInt out_size = (uInt)MIN(buffers->out_size, UINT_MAX);
    int code;

    if (unpacker->is_whole && in_size > 0) {
        inflateReset(gzip);
        unpacker->is_whole = false;
    }
    gzip->next_in = (z_const Bytef *)(uintptr_t)buffers->in;
    gzip->avail_in = in_size;
    gzip->next_out = buffers->out;
    gzip->avail_out = out_size;
    code = inflate(gzip, Z_NO_FLUSH);
    buffers->in += in_size - gzip->avail_in;
    buffers->in_size -= in_size - gzip->avail_in;
    buffers->out += out_size - gzip->avail_out;
    buffers->out_size -= out_size - gzip->avail_out;

    if (code == Z_MEM_ERROR)
        return UNPACKER_NO_MEMORY;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        unpacker->fault = gzip->msg != NULL ? gzip->msg : "it wants a dictionary";
        return UNPACKER_DAMAGED;
    }
    unpacker->is_whole = code == Z_STREAM_END;
    return UNPACKER_GOES_ON;
}

static UnpackerStatus run_zstd(Unpacker *unpacker, UnpackerBuffers *buffers)
{
    ZSTD_inBuffer in = { buffers->in, buffers->in_size, 0 };
    ZSTD_outBuffer out = { buffers->out, buffers->out_size, 0 };
    const size_t left = ZSTD_decompressStream(unpacker->zstd, &out, &in);

    buffers->in += in.pos;
    buffers->in_size -= in.pos;
    buffers->out += out.pos;
    buffers->out_size -= out.pos;
    if (ZSTD_isError(left)) {
        unpacker->fault = ZSTD_getErrorName(left);
        return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? UNPACKER_NO_MEMORY
                                                                       : UNPACKER_DAMAGED;
    }
    unpacker->is_whole = left == 0;
    return UNPACKER_GOES_ON;
}

UnpackerStatus unpacker_run(Unpacker *unpacker, UnpackerBuffers *buffers)
{
    return unpacker->zstd != NULL ? run_zstd(unpacker, buffers) : run_gzip(unpacker, buffers);
}

bool unpacker_is_whole(const Unpacker *unpacker)
{
    return unpacker->is_whole;
}

const char *unpacker_fault(const Unpacker *unpacker)
{
    return unpacker->fault;
}
