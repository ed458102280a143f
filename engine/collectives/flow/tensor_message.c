/* The bytes of what nodes send to each other for collectives: see tensor_message.h. */
#include "engine/collectives/flow/tensor_message.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"

void tensor_message_write(const TensorMessage *message, void *header)
{
    const uint32_t numbers[] = { (uint32_t)message->kind, message->code };
    const uint64_t places[] = { message->number, message->place };
    uint8_t *const at = header;

    memcpy(at, numbers, sizeof numbers);
    memcpy(at + 8, places, sizeof places);
}

const char *tensor_message_read(const void *bytes, size_t n, TensorMessage *message)
{
    const uint8_t *const at = bytes;
    uint32_t numbers[2];
    uint64_t places[2];

    if (n < TENSOR_MESSAGE_HEADER_BYTES)
        return "a piece of a tensor that is too short";
    if (n - TENSOR_MESSAGE_HEADER_BYTES > TENSOR_MESSAGE_MOST_BYTES)
        return "a piece of a tensor that is too large";
    memcpy(numbers, at, sizeof numbers);
    memcpy(places, at + 8, sizeof places);
    if (numbers[0] < TENSOR_MESSAGE_PART || numbers[0] >= TENSOR_MESSAGE_END)
        return "a piece of a tensor of a kind that there is not";
    if ((numbers[0] == TENSOR_MESSAGE_FAILURE) != (numbers[1] != CONTROL_OK))
        return "a piece of a tensor with a wrong code";
    if (numbers[1] > CONTROL_CODE(RUBATO_ERROR_TIMEOUT))
        return "a piece of a tensor with an error code that there is not";
    if (numbers[0] == TENSOR_MESSAGE_FAILURE && n > TENSOR_MESSAGE_HEADER_BYTES + CONTROL_MAX_TEXT)
        return "a failure of a tensor whose text is too long";
    if (places[0] == 0)
        return "a piece of no tensor";
    *message = (TensorMessage){ .kind = (TensorMessageKind)numbers[0],
                                .code = numbers[1],
                                .number = places[0],
                                .place = places[1],
                                .bytes = at + TENSOR_MESSAGE_HEADER_BYTES,
                                .n_bytes = n - TENSOR_MESSAGE_HEADER_BYTES };
    return NULL;
}
