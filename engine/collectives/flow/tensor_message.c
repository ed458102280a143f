/* The bytes of what nodes send to each other for collectives: see tensor_message.h. */
#include "engine/collectives/flow/tensor_message.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"

bool tensor_message_may_be_lent(TensorMessageKind kind)
{
    return kind == TENSOR_MESSAGE_PART || kind == TENSOR_MESSAGE_RESULT ||
           kind == TENSOR_MESSAGE_ROWS;
}

void tensor_message_write(const TensorMessage *message, void *header)
{
    const uint32_t lent = message->is_lent ? TENSOR_MESSAGE_LENT : 0;
    const uint32_t numbers[] = { (uint32_t)message->kind + lent, message->code };
    const uint64_t places[] = { message->number, message->place };
    const uint32_t loan[] = { message->loan.block | (uint32_t)message->loan.reader << 16,
                              message->loan.use };
    const uint64_t n_bytes = message->n_bytes;
    uint8_t *const at = header;

    memcpy(at, numbers, sizeof numbers);
    memcpy(at + 8, places, sizeof places);
    if (!message->is_lent)
        return;
    memcpy(at + TENSOR_MESSAGE_HEADER_BYTES, loan, sizeof loan);
    memcpy(at + TENSOR_MESSAGE_HEADER_BYTES + sizeof loan, &n_bytes, sizeof n_bytes);
}

/* NULL, or what is wrong. */
static const char *read_loan(const uint8_t *at, size_t n, TensorMessage *message)
{
    uint32_t loan[2];
    uint64_t n_bytes;

    if (!tensor_message_may_be_lent(message->kind))
        return "a piece of a tensor of a kind that is not lent";
    if (n != TENSOR_MESSAGE_LOAN_BYTES)
        return "a piece of a tensor that is lent, and not told well";
    memcpy(loan, at, sizeof loan);
    memcpy(&n_bytes, at + sizeof loan, sizeof n_bytes);
    if (n_bytes > TENSOR_MESSAGE_MOST_BYTES)
        return "a piece of a tensor that is too large";
    message->is_lent = true;
    message->loan = (LentPlace){ (uint16_t)loan[0], (uint16_t)(loan[0] >> 16), loan[1] };
    message->bytes = NULL;
    message->n_bytes = n_bytes;
    return NULL;
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
    const bool is_lent = numbers[0] > TENSOR_MESSAGE_LENT;
    numbers[0] -= is_lent ? TENSOR_MESSAGE_LENT : 0;
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
    return is_lent ? read_loan(at + TENSOR_MESSAGE_HEADER_BYTES, n - TENSOR_MESSAGE_HEADER_BYTES,
                               message)
                   : NULL;
}
