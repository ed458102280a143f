/* Calls of handlers as bytes, and how they end.
 *
 * Threads: any; the functions depend on their arguments only. */
#include "io/net/handler_call.h"

#include <string.h>

enum { HEADER_BYTES = HANDLER_NAME_BYTES + 6 * 8 };

typedef struct {
    char name[HANDLER_NAME_BYTES];
    uint64_t n_argument_bytes, is_whole, n_keys, first_key, n_key_bytes, number;
} Header;

G_STATIC_ASSERT(sizeof(Header) == HEADER_BYTES);

static size_t key_bytes(const RubatoKeys *keys)
{
    return keys->keys == NULL ? 0 : keys->n * sizeof(RubatoKey);
}

size_t handler_call_size(const HandlerCall *call, const RubatoKeys *keys)
{
    return HEADER_BYTES + key_bytes(keys) + call->n_bytes;
}

void handler_call_write(const HandlerCall *call, const RubatoKeys *keys, void *bytes)
{
    Header header = {
        .n_argument_bytes = call->n_bytes,
        .is_whole = call->is_whole,
        .n_keys = keys->n,
        .first_key = keys->first,
        .n_key_bytes = key_bytes(keys),
        .number = call->number,
    };
    char *at = bytes;

    g_strlcpy(header.name, call->ops->name, sizeof header.name);
    memcpy(at, &header, sizeof header);
    at += sizeof header;
    if (keys->keys != NULL && keys->at == NULL)
        memcpy(at, keys->keys, keys->n * sizeof(RubatoKey));
    else if (keys->keys != NULL)
        for (size_t i = 0; i < keys->n; i++)
            memcpy(at + i * sizeof(RubatoKey), &keys->keys[keys->at[i]], sizeof(RubatoKey));
    if (call->n_bytes > 0)
        memcpy(at + key_bytes(keys), call->arguments, call->n_bytes);
}

const char *handler_call_read(const void *bytes, size_t n, HandlerCall *call, RubatoKeys *keys,
                              const char **name)
{
    const Header *header = bytes;

    if (n < sizeof *header || memchr(header->name, '\0', sizeof header->name) == NULL)
        return "the call of a handler without a name";
    const size_t rest = n - sizeof *header;
    const bool is_list = header->n_key_bytes > 0;

    /* one after the other, so that no sum can overflow */
    if (header->n_key_bytes > rest || header->n_argument_bytes != rest - header->n_key_bytes)
        return "the call of a handler whose sizes do not fit its bytes";
    if (is_list && (header->n_key_bytes % sizeof(RubatoKey) != 0 ||
                    header->n_key_bytes / sizeof(RubatoKey) != header->n_keys))
        return "the call of a handler whose keys are not as many as it says";
    if (header->is_whole > 1 || (header->is_whole == 1 && header->n_keys != 0))
        return "the call of a handler on all rows that names keys";
    *name = header->name;
    *keys = (RubatoKeys){
        .keys = is_list ? (const RubatoKey *)(const void *)(header + 1) : NULL,
        .first = header->first_key,
        .n = (size_t)header->n_keys,
    };
    call->arguments = (const char *)(header + 1) + header->n_key_bytes;
    call->n_bytes = (size_t)header->n_argument_bytes;
    call->is_whole = header->is_whole == 1;
    call->number = header->number;
    return NULL;
}

void handler_call_end(Message *message)
{
    if (message->status == CALL_OK && message->request.handler_call->answer.failure != NULL)
        message->status = CALL_FAILED;
    message_end_call(message);
}
