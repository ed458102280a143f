/* Messages on the heap: one block with the message, its keys and its input. */
#include "io/net/message.h"

#include <glib.h>
#include <string.h>

#include "io/memory_room.h"

/* The server is on the node that sent the message; another node's answer does not come this way. */
void message_end_call(Message *message)
{
    if (G_UNLIKELY(message->status == CALL_MOVED))
        call_note_mover(message->call, message->node);
    call_end_part(message->call, message->status, message->min_clock);
}

static void end_copy(Message *message)
{
    if (message->call != NULL)
        message_end_call(message);
    g_free(message);
}

Message *message_copy_clock(const Message *message)
{
    Message *copy = g_memdup2(message, sizeof *message);

    copy->end = end_copy;
    return copy;
}

Message *message_copy_request(const Message *message)
{
    const RubatoKeys *keys = &message->request.keys;
    const size_t n_keys = keys->keys == NULL ? 0 : keys->n;
    const size_t row_bytes = message->row_bytes;
    const size_t input_bytes = message->request.input != NULL ? keys->n * row_bytes : 0;
    const size_t padding_bytes = -input_bytes % sizeof(RubatoKey);
    const size_t bytes = sizeof(Message) + n_keys * sizeof(RubatoKey) + input_bytes + padding_bytes;
    const char *input = message->request.input;
    Message *copy = bytes == sizeof *copy ? g_malloc(bytes) : memory_try_malloc(bytes);

    if (copy == NULL)
        return NULL;
    RubatoKey *copied_keys = (RubatoKey *)(copy + 1);
    char *copied_input = (char *)(copied_keys + n_keys);

    *copy = *message;
    copy->end = end_copy;
    copy->request.keys.at = NULL;
    copy->is_packed = true;
    memset(copied_input + input_bytes, 0, padding_bytes);
    if (keys->keys != NULL)
        copy->request.keys.keys = copied_keys;
    if (input_bytes > 0)
        copy->request.input = copied_input;
    if (keys->at == NULL) {
        if (n_keys > 0)
            memcpy(copied_keys, keys->keys, n_keys * sizeof(RubatoKey));
        if (input_bytes > 0)
            memcpy(copied_input, input, input_bytes);
        return copy;
    }
    for (size_t i = 0; i < n_keys; i++) {
        copied_keys[i] = keys->keys[keys->at[i]];
        if (input_bytes > 0)
            memcpy(copied_input + i * row_bytes, input + keys->at[i] * row_bytes, row_bytes);
    }
    return copy;
}
