/* The backend "own": messages of collectives go by the node's network, and come by it
 * (tensor_router_receive). See tensor_backend.h. */
#include "engine/collectives/backend/tensor_backend.h"

enum {
    LOOK_MS = 200,    /* between two looks whether a wait for room is over */
    FULL_WINDOWS = 4, /* on their way to a node: others than waiting threads send no more */
};

typedef struct {
    TensorBackend base;
    PostOffice *office; /* its network is there when tasks are */
} OwnBackend;

static Network *network_of(TensorBackend *backend)
{
    return ((const OwnBackend *)(const void *)backend)->office->network;
}

static void *new_message(TensorBackend *backend, uint32_t epoch, const TensorMessage *message,
                         void **bytes)
{
    Frame *const frame = network_new_frame(
        network_of(backend),
        &(WireHeader){ .kind = MESSAGE_TENSOR,
                       .epoch = epoch,
                       .value_bytes = TENSOR_MESSAGE_HEADER_BYTES + message->n_bytes });

    if (frame == NULL)
        return NULL;
    uint8_t *const values = frame_values(frame);
    tensor_message_write(message, values);
    *bytes = values + TENSOR_MESSAGE_HEADER_BYTES;
    return frame;
}

static void send_message(TensorBackend *backend, uint32_t node, void *message)
{
    network_send(network_of(backend), node, message);
}

static void forget(TensorBackend *backend, void *message)
{
    (void)backend;
    frame_free(message);
}

static void *keep(TensorBackend *backend, void *message, const void **bytes)
{
    Incoming *const kept = incoming_detach(message);

    (void)backend;
    *bytes = (const uint8_t *)kept->values + TENSOR_MESSAGE_HEADER_BYTES;
    if (incoming_park(kept, 0))
        return kept;
    incoming_free(kept);
    return NULL;
}

static void drop(TensorBackend *backend, void *message)
{
    (void)backend;
    incoming_free(message);
}

static bool is_full(TensorBackend *backend, uint32_t node)
{
    return network_is_full(network_of(backend), node, FULL_WINDOWS);
}

static void wait_room(TensorBackend *backend, uint32_t node, bool (*is_over)(void *data),
                      void *data)
{
    Network *const network = network_of(backend);

    while (!is_over(data) && !network_is_stopping(network) &&
           !network_wait_room(network, node, is_over, data, LOOK_MS))
        continue;
}

static const TensorWays ways = {
    .new_message = new_message,
    .send = send_message,
    .forget = forget,
    .keep = keep,
    .drop = drop,
    .is_full = is_full,
    .wait_room = wait_room,
};

static TensorBackend *open_own(const TensorBackendPlace *place, GError **error)
{
    OwnBackend *const own = g_new0(OwnBackend, 1);

    (void)error;
    own->base = (TensorBackend){ &tensor_backend_own, &ways };
    own->office = place->office;
    return &own->base;
}

static void close_own(TensorBackend *backend, unsigned patience_ms)
{
    (void)patience_ms;
    g_free(backend);
}

const TensorBackendOps tensor_backend_own = {
    .name = TENSOR_BACKEND_OWN,
    .open = open_own,
    .close = close_own,
};
