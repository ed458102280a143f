/* The bytes of requests and answers of services: see service_message.h. */
#include "engine/services/service_message.h"

#include <string.h>

#include "engine/control/control.h"

enum { HEADER_BYTES = 32 };

static size_t name_bytes(ServiceMessageKind kind)
{
    return kind == SERVICE_MESSAGE_REQUEST ? RUBATO_SERVICE_NAME_BYTES : 0;
}

size_t service_message_size(const ServiceMessage *message)
{
    return HEADER_BYTES + name_bytes(message->kind) + message->n_bytes;
}

void service_message_write(const ServiceMessage *message, void *bytes)
{
    const uint32_t numbers[] = { (uint32_t)message->kind, message->code };
    const uint64_t sizes[] = { message->serial, message->n_whole, message->offset };
    uint8_t *const at = bytes;

    memcpy(at, numbers, sizeof numbers);
    memcpy(at + 8, sizes, sizeof sizes);
    if (message->kind == SERVICE_MESSAGE_REQUEST)
        strncpy((char *)at + HEADER_BYTES, message->name, RUBATO_SERVICE_NAME_BYTES);
    if (message->n_bytes > 0)
        memcpy(at + HEADER_BYTES + name_bytes(message->kind), message->bytes, message->n_bytes);
}

static const char *check(const ServiceMessage *message)
{
    if (message->n_whole > RUBATO_SERVICE_MOST_BYTES)
        return "a body of a service that is too large";
    if (message->offset > message->n_whole || message->n_bytes > message->n_whole - message->offset)
        return "a piece of a service's body that is not inside of it";
    if (message->n_bytes > SERVICE_PIECE_BYTES || (message->n_bytes == 0 && message->n_whole > 0))
        return "a piece of a service's body of a wrong size";
    if (message->kind != SERVICE_MESSAGE_ANSWER && message->code != CONTROL_OK)
        return "a request to a service that has failed";
    if (message->code > CONTROL_CODE(RUBATO_ERROR_TIMEOUT))
        return "an answer of a service with an error code that there is not";
    if (message->code != CONTROL_OK && message->n_whole > CONTROL_MAX_TEXT)
        return "a failure of a service whose text is too long";
    if (message->code != CONTROL_OK && message->n_bytes != message->n_whole)
        return "a failure of a service in pieces";
    if (message->kind == SERVICE_MESSAGE_FORGET && message->n_whole > 0)
        return "a FORGET of a service with a body";
    return NULL;
}

const char *service_message_read(const void *bytes, size_t n, ServiceMessage *message)
{
    const uint8_t *const at = bytes;
    uint32_t numbers[2];
    uint64_t sizes[3];

    if (n < HEADER_BYTES)
        return "a message of a service that is too short";
    memcpy(numbers, at, sizeof numbers);
    memcpy(sizes, at + 8, sizeof sizes);
    if (numbers[0] < SERVICE_MESSAGE_REQUEST || numbers[0] >= SERVICE_MESSAGE_END)
        return "a message of a service of a kind that there is not";
    ServiceMessage read = { .kind = (ServiceMessageKind)numbers[0],
                            .code = numbers[1],
                            .serial = sizes[0],
                            .n_whole = sizes[1],
                            .offset = sizes[2] };
    const size_t n_header = HEADER_BYTES + name_bytes(read.kind);
    if (n < n_header)
        return "a message of a service that is too short";
    if (read.kind == SERVICE_MESSAGE_REQUEST) {
        read.name = (const char *)at + HEADER_BYTES;
        if (read.name[0] == '\0' || memchr(read.name, '\0', RUBATO_SERVICE_NAME_BYTES) == NULL ||
            !g_utf8_validate(read.name, -1, NULL))
            return "a request to a service whose name is damaged";
    }
    read.bytes = at + n_header;
    read.n_bytes = n - n_header;
    const char *const wrong = check(&read);
    if (wrong == NULL)
        *message = read;
    return wrong;
}
