/* See the header. */
#include "tests/support/engine/tensor_post.h"

#include <string.h>

#include "tests/support/runner.h"

typedef struct {
    Incoming incoming;
    uint32_t to;
    uint64_t bytes[];
} Letter;

static TensorPostHooks hooks;
static GPtrArray *letters; /* of Letter: on their way */
static uint32_t n_letters; /* that exist */

void tensor_post_begin(const TensorPostHooks *given)
{
    hooks = *given;
    letters = g_ptr_array_new();
    n_letters = 0;
}

void tensor_post_end(void)
{
    require_msg(n_letters == 0, "%u messages are left", n_letters);
    g_clear_pointer(&letters, g_ptr_array_unref);
}

Network *tensor_post_network(uint32_t node)
{
    return (Network *)((uintptr_t)node + 1);
}

static uint32_t number_of(const Network *network)
{
    return (uint32_t)((uintptr_t)network - 1);
}

/* ---- the network's functions ---- */

Frame *__wrap_network_new_frame(Network *network, const WireHeader *header);
void __wrap_network_send(Network *network, uint32_t to, Frame *frame);
bool __wrap_network_is_full(const Network *network, uint32_t node, unsigned n_windows);
bool __wrap_network_is_stopping(const Network *network);
bool __wrap_network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user),
                              void *user, int timeout_ms);
void __wrap_incoming_free(Incoming *incoming);
Incoming *__wrap_incoming_detach(Incoming *incoming);
bool __wrap_incoming_park(Incoming *incoming, size_t more_bytes);

Frame *__wrap_network_new_frame(Network *network, const WireHeader *header)
{
    (void)network;
    return hooks.is_starved() ? NULL : frame_new(header);
}

void __wrap_network_send(Network *network, uint32_t to, Frame *frame)
{
    const WireHeader *const header = frame_header(frame);
    Letter *const letter = g_malloc(sizeof(Letter) + header->value_bytes);

    *letter = (Letter){ .to = to,
                        .incoming = { .node = number_of(network),
                                      .header = *header,
                                      .value_bytes = header->value_bytes } };
    memcpy(letter->bytes, frame_values(frame), header->value_bytes);
    letter->incoming.values = letter->bytes;
    frame_free(frame);
    n_letters++;
    g_ptr_array_add(letters, letter);
    hooks.sent();
}

bool __wrap_network_is_full(const Network *network, uint32_t node, unsigned n_windows)
{
    (void)network;
    (void)node;
    (void)n_windows;
    return hooks.has_no_room();
}

bool __wrap_network_is_stopping(const Network *network)
{
    (void)network;
    return false;
}

bool __wrap_network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user),
                              void *user, int timeout_ms)
{
    (void)network;
    (void)node;
    (void)timeout_ms;
    hooks.sent();
    return !cancelled(user) && !hooks.has_no_room();
}

void __wrap_incoming_free(Incoming *incoming)
{
    if (incoming == NULL)
        return;
    n_letters--;
    g_free(incoming);
}

/* Moves it: whoever used its old place would find nothing there. */
Incoming *__wrap_incoming_detach(Incoming *incoming)
{
    Letter *const letter = (Letter *)incoming;
    Letter *const moved = g_memdup2(letter, sizeof(Letter) + incoming->value_bytes);

    moved->incoming.values = moved->bytes;
    g_free(letter);
    return &moved->incoming;
}

bool __wrap_incoming_park(Incoming *incoming, size_t more_bytes)
{
    (void)incoming;
    (void)more_bytes;
    return !hooks.is_starved();
}

/* ---- what is on its way ---- */

uint32_t tensor_post_count(void)
{
    return letters->len;
}

uint32_t tensor_post_choose(uint32_t which, uint32_t *to)
{
    const Letter *const chosen = letters->pdata[which];

    *to = chosen->to;
    for (uint32_t i = 0; i < which; i++) {
        const Letter *const other = letters->pdata[i];
        TensorMessage message;

        if (other->to == chosen->to && other->incoming.node == chosen->incoming.node &&
            tensor_message_read(other->bytes, other->incoming.value_bytes, &message) == NULL &&
            message.kind == TENSOR_MESSAGE_SIZES)
            return i;
    }
    return which;
}

Incoming *tensor_post_take(uint32_t which)
{
    return &((Letter *)g_ptr_array_remove_index(letters, which))->incoming;
}

void tensor_post_drop(uint32_t which)
{
    __wrap_incoming_free(tensor_post_take(which));
}

Incoming *tensor_post_forge(uint32_t from, uint32_t epoch, const void *bytes, size_t n)
{
    Letter *const letter = g_malloc(sizeof(Letter) + n);

    *letter = (Letter){ .incoming = { .node = from,
                                      .header = { .kind = MESSAGE_TENSOR, .epoch = epoch },
                                      .values = letter->bytes,
                                      .value_bytes = n } };
    memcpy(letter->bytes, bytes, n);
    n_letters++;
    return &letter->incoming;
}
