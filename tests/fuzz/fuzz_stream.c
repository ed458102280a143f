/* Reads arbitrary bytes as messages of streams over ZeroMQ. What is taken is written again, and has
 * to be the same. */
#include <stdlib.h>
#include <string.h>

#include "io/stream/zmq/stream_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_body(RubatoByteWriter *again, const StreamMessage *message)
{
    if (message->kind != STREAM_MESSAGE_LIST) {
        rubato_write(again, message->body, message->n_bytes);
        return;
    }
    /* the exact number, so that a sanitizer sees one more */
    g_autofree ListedVersion *versions = g_new(ListedVersion, message->n);
    if (!stream_message_read_versions(message, versions)) {
        rubato_write(again, message->body, message->n_bytes);
        return;
    }
    for (uint32_t i = 0; i < message->n; i++)
        stream_message_write_version(again, &versions[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    RubatoByteWriter again = rubato_byte_writer_new(STREAM_MOST_ANSWER);
    StreamMessage message;

    if (stream_message_read(data, size, &message)) {
        stream_message_write(&again, &message);
        write_body(&again, &message);
        if (again.failed || again.n != size || memcmp(again.bytes, data, size) != 0)
            abort();
    }
    rubato_byte_writer_clear(&again);
    return 0;
}
