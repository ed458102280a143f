/* Messages on the heap: one block with the message, its keys and its deltas. */
#include "io/net/message.h"

#include <glib.h>
#include <string.h>

void message_end_call(Message *message)
{
    call_end_part(message->call, message->status, message->min_clock);
}

static void end_copy(Message *message)
{
    if (message->call != NULL)
        message_end_call(message);
    g_free(message);
}

Message *message_copy(const Message *message, size_t row_bytes)
{
    const RubatoKeys *keys = &message->request.keys;
    const size_t n_keys = keys->keys == NULL ? 0 : keys->n;
    const bool with_values = message->kind == MESSAGE_ADD && row_bytes > 0;
    const size_t value_bytes = with_values ? keys->n * row_bytes : 0;
    const size_t bytes = sizeof(Message) + n_keys * sizeof(RubatoKey) + value_bytes;
    const char *values = message->request.values;
    Message *copy = bytes == sizeof *copy ? g_malloc(bytes) : g_try_malloc(bytes);

    if (copy == NULL)
        return NULL;
    RubatoKey *copied_keys = (RubatoKey *)(copy + 1);
    char *copied_values = (char *)(copied_keys + n_keys);

    *copy = *message;
    copy->end = end_copy;
    copy->request.keys.at = NULL;
    if (keys->keys != NULL)
        copy->request.keys.keys = copied_keys;
    if (with_values)
        copy->request.values = copied_values;
    if (keys->at == NULL) {
        if (n_keys > 0)
            memcpy(copied_keys, keys->keys, n_keys * sizeof(RubatoKey));
        if (value_bytes > 0)
            memcpy(copied_values, values, value_bytes);
        return copy;
    }
    for (size_t i = 0; i < n_keys; i++) {
        copied_keys[i] = keys->keys[keys->at[i]];
        if (with_values)
            memcpy(copied_values + i * row_bytes, values + keys->at[i] * row_bytes, row_bytes);
    }
    return copy;
}
