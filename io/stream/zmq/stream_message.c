/* The bytes of messages between publishers of versions and their readers. */
#include "io/stream/zmq/stream_message.h"

#define MAGIC 0x31536252u /* "RbS1" */
#define VERSION_BYTES ((size_t)32)

void stream_message_write(RubatoByteWriter *to, const StreamMessage *message)
{
    rubato_write_u32(to, MAGIC);
    rubato_write_u32(to, (uint32_t)message->kind);
    rubato_write_u64(to, message->id);
    rubato_write_u64(to, message->number);
    rubato_write_u64(to, message->seed);
    rubato_write_u32(to, message->table);
    rubato_write_u32(to, message->part);
    rubato_write_u64(to, message->offset);
    rubato_write_u32(to, message->n);
    rubato_write_u32(to, 0);
}

void stream_message_write_version(RubatoByteWriter *to, const ListedVersion *version)
{
    rubato_write_u64(to, version->number);
    rubato_write_u64(to, version->seed);
    rubato_write_u64(to, version->base);
    rubato_write_u64(to, version->base_seed);
}

/* Whether as many bytes follow as its kind and its count say. */
static bool has_its_length(const StreamMessage *message)
{
    switch (message->kind) {
    case STREAM_MESSAGE_LIST:
        return message->n <= STREAM_MOST_LISTED &&
               message->n_bytes == (size_t)message->n * VERSION_BYTES;
    case STREAM_MESSAGE_BYTES:
        return message->n <= STREAM_MOST_BYTES && message->n_bytes == message->n;
    case STREAM_MESSAGE_ASK_BYTES:
        return message->n > 0 && message->n <= STREAM_MOST_BYTES && message->n_bytes == 0;
    case STREAM_MESSAGE_NEWEST:
    case STREAM_MESSAGE_ASK_LIST:
    case STREAM_MESSAGE_GONE:
        return message->n == 0 && message->n_bytes == 0;
    }
    return false;
}

bool stream_message_read(const void *bytes, size_t n, StreamMessage *message)
{
    RubatoByteReader reader = rubato_byte_reader_new(bytes, n);
    const uint32_t magic = rubato_read_u32(&reader), kind = rubato_read_u32(&reader);

    *message = (StreamMessage){ .kind = (StreamMessageKind)kind };
    message->id = rubato_read_u64(&reader);
    message->number = rubato_read_u64(&reader);
    message->seed = rubato_read_u64(&reader);
    message->table = rubato_read_u32(&reader);
    message->part = rubato_read_u32(&reader);
    message->offset = rubato_read_u64(&reader);
    message->n = rubato_read_u32(&reader);
    const uint32_t zero = rubato_read_u32(&reader);
    message->n_bytes = rubato_byte_reader_left(&reader);
    message->body = rubato_read_bytes(&reader, message->n_bytes);
    return !reader.failed && magic == MAGIC && zero == 0 && kind >= STREAM_MESSAGE_NEWEST &&
           kind <= STREAM_MESSAGE_GONE && message->offset <= INT64_MAX - STREAM_MOST_BYTES &&
           has_its_length(message);
}

bool stream_message_read_versions(const StreamMessage *message, ListedVersion *versions)
{
    RubatoByteReader reader = rubato_byte_reader_new(message->body, message->n_bytes);
    uint64_t before = 0;

    for (uint32_t i = 0; i < message->n; i++) {
        ListedVersion *const version = &versions[i];

        version->number = rubato_read_u64(&reader);
        version->seed = rubato_read_u64(&reader);
        version->base = rubato_read_u64(&reader);
        version->base_seed = rubato_read_u64(&reader);
        if (version->number <= before || version->base >= version->number)
            return false;
        before = version->number;
    }
    return !reader.failed;
}
