/* The backend "own": messages of collectives go by the node's network, and come by it
 * (tensor_router_receive). See tensor_backend.h.
 *
 * DESIGN NOTE
 *
 * Between nodes of a host, pieces of some size go by memory that is lent (lent_memory.h): the step
 * that makes the values writes them to where the other node reads them, and only their place goes
 * by the network, in its order. So the values are copied neither into a packet nor out of one. If
 * no block is free, or the node is on another host, the values go by the network, too.
 * Several nodes of the host that get the same values read one block.
 *
 * A node keeps blocks of others until it has all parts of a chunk. Two nodes could so wait for each
 * other's blocks for ever, if they waited for nothing else. Therefore who sends waits for a block
 * only for LOAN_WAIT_NS; then its values go by the network, whose room comes back whatever is kept
 * (incoming_park).
 *
 * Between hosts, large pieces are sent from the worker's arrays (direct_write.h), and results are
 * received there (tensor_arrivals.c). */
#include "engine/collectives/backend/backend_own.h"

#include <sched.h>
#include <string.h>

#include "engine/collectives/backend/tensor_backend.h"
#include "io/net/monotonic.h"
#include "io/net/transport/lent_memory.h"

enum {
    FULL_WINDOWS = 4, /* on their way to a node: others than waiting threads send no more */
    LOAN_WAIT_NS = 500000,
    FAR_BYTES = 512 << 10, /* of a message whose way costs more than copying does */

    /* Messages of so many bytes are acknowledged at once (ACK_BYTES in link.c). Smaller ones are
     * not, and the worker would wait longer for its arrays than copying takes. */
    DIRECT_BYTES = 256 << 10,
};

typedef struct {
    TensorBackend base;
    PostOffice *office; /* its network is there when tasks are */
} OwnBackend;

/* In the room of an Incoming. */
typedef struct {
    BorrowedMemory *memory; /* where its piece lies; NULL: in the message */
    LentPlace place;
    const void *bytes; /* in that memory */
    const void *apart; /* of one that was read to its place; NULL: it was not */
} OwnPiece;

G_STATIC_ASSERT(TENSOR_MESSAGE_HEADER_BYTES == NETWORK_DIRECT_FIRST_BYTES);

static Network *network_of(TensorBackend *backend)
{
    return ((const OwnBackend *)(const void *)backend)->office->network;
}

/* ---- sending ---- */

static Frame *new_frame(Network *network, uint32_t epoch, size_t n_bytes)
{
    return network_new_frame(network,
                             &(WireHeader){ .kind = MESSAGE_TENSOR,
                                            .epoch = epoch,
                                            .value_bytes = TENSOR_MESSAGE_HEADER_BYTES + n_bytes });
}

/* A message that says where its piece is. NULL: there is no memory, and the loan has ended. */
static Frame *new_frame_of_loan(Network *network, uint32_t node, uint32_t epoch,
                                const TensorMessage *message, LentPlace place)
{
    TensorMessage lent = *message;
    Frame *const frame = new_frame(network, epoch, TENSOR_MESSAGE_LOAN_BYTES);

    if (frame == NULL) {
        network_end_loan(network, node, place);
        return NULL;
    }
    lent.is_lent = true;
    lent.loan = place;
    tensor_message_write(&lent, frame_values(frame));
    return frame;
}

/* A message whose piece is written to memory that is lent. NULL: there is none. */
static Frame *new_lent(Network *network, uint32_t node, uint32_t epoch,
                       const TensorMessage *message, void **bytes)
{
    NetworkLoan loan;

    if (!network_lend(network, node, message->n_bytes, &loan))
        return NULL;
    *bytes = loan.values;
    return new_frame_of_loan(network, node, epoch, message, loan.place);
}

static void *new_message(TensorBackend *backend, uint32_t node, uint32_t epoch,
                         const TensorMessage *message, void **bytes)
{
    Network *const network = network_of(backend);
    Frame *frame = NULL;

    if (tensor_message_may_be_lent(message->kind) && network_lends(network, node, message->n_bytes))
        frame = new_lent(network, node, epoch, message, bytes);
    if (frame != NULL)
        return frame;
    frame = new_frame(network, epoch, message->n_bytes);
    if (frame == NULL)
        return NULL;
    uint8_t *const values = frame_values(frame);
    tensor_message_write(message, values);
    *bytes = values + TENSOR_MESSAGE_HEADER_BYTES;
    return frame;
}

/* Where a message of this node has its piece, if it is lent. */
static bool find_loan(Frame *frame, TensorMessage *message)
{
    return tensor_message_read(frame_values(frame), frame_header(frame)->value_bytes, message) ==
               NULL &&
           message->is_lent;
}

static void *share_message(TensorBackend *backend, uint32_t node, uint32_t epoch,
                           const TensorMessage *message, void *first)
{
    Network *const network = network_of(backend);
    TensorMessage lent;
    LentPlace place;

    return find_loan(first, &lent) && network_lends(network, node, message->n_bytes) &&
                   network_share_loan(network, node, lent.loan, &place)
               ? new_frame_of_loan(network, node, epoch, message, place)
               : NULL;
}

/* The values are not read any more (direct_write.h). */
static void end_reading(void *readers)
{
    call_end_part(readers, CALL_OK, UINT64_MAX);
}

static void *lend_message(TensorBackend *backend, uint32_t node, uint32_t epoch,
                          const TensorMessage *message, Call *readers)
{
    Network *const network = network_of(backend);
    const DirectWriteSource source = {
        .bytes = message->bytes, .n_bytes = message->n_bytes, .end = end_reading, .user = readers
    };

    if (message->n_bytes < DIRECT_BYTES || network_is_memory(network, node) ||
        !network_sends_direct(network, node, message->n_bytes))
        return NULL;
    Frame *const frame = network_new_direct_frame(
        network,
        &(WireHeader){ .kind = MESSAGE_TENSOR,
                       .epoch = epoch,
                       .value_bytes = TENSOR_MESSAGE_HEADER_BYTES + message->n_bytes },
        &source);
    if (frame == NULL)
        return NULL;
    call_join_part(readers);
    tensor_message_write(message, frame_values(frame));
    return frame;
}

static void revoke_lent(TensorBackend *backend)
{
    network_revoke_direct(network_of(backend));
}

static bool reads_lent(TensorBackend *backend, uint32_t node)
{
    return network_reads_direct(network_of(backend), node);
}

static size_t best_bytes(TensorBackend *backend, uint32_t node)
{
    return network_is_memory(network_of(backend), node) ? LENT_BLOCK_BYTES : FAR_BYTES;
}

static void note_loan(TensorBackend *backend, uint32_t node, Frame *message)
{
    TensorMessage lent;

    if (find_loan(message, &lent))
        network_note_loan(network_of(backend), node, lent.loan);
}

static void send_message(TensorBackend *backend, uint32_t node, void *message)
{
    note_loan(backend, node, message);
    network_send(network_of(backend), node, message);
}

static void send_with_next(TensorBackend *backend, uint32_t node, void *message)
{
    note_loan(backend, node, message);
    network_push(network_of(backend), node, message);
}

static void forget(TensorBackend *backend, uint32_t node, void *message)
{
    TensorMessage lent;

    if (find_loan(message, &lent))
        network_end_loan(network_of(backend), node, lent.loan);
    frame_free(message);
}

/* ---- what comes ---- */

static OwnPiece *piece_of(Incoming *incoming)
{
    return incoming->room;
}

const char *backend_own_take(Network *network, Incoming *incoming, TensorMessage *message)
{
    OwnPiece *const piece = piece_of(incoming);

    *piece = (OwnPiece){ 0 };
    const char *const wrong = tensor_message_read(incoming->values, incoming->value_bytes, message);
    if (wrong == NULL && incoming->apart != NULL) {
        message->is_direct = true;
        message->bytes = piece->apart = incoming->apart;
    }
    if (wrong != NULL || !message->is_lent)
        return wrong;
    piece->memory = network_borrow(network, incoming->node);
    if (piece->memory == NULL)
        return NULL;
    piece->place = message->loan;
    piece->bytes = borrowed_memory_at(piece->memory, piece->place, message->n_bytes);
    message->bytes = piece->bytes;
    return piece->bytes == NULL ? "a piece of a tensor outside the memory that it lends" : NULL;
}

void backend_own_drop(Incoming *incoming)
{
    OwnPiece *const piece = piece_of(incoming);

    if (piece->bytes != NULL)
        borrowed_memory_return(piece->memory, piece->place);
    borrowed_memory_unref(piece->memory);
    incoming_free(incoming);
}

static void *keep(TensorBackend *backend, void *message, const void **bytes)
{
    Incoming *const kept = incoming_detach(message);
    const OwnPiece *const piece = piece_of(kept);

    (void)backend;
    *bytes = piece->bytes != NULL   ? piece->bytes
             : piece->apart != NULL ? piece->apart
                                    : (const uint8_t *)kept->values + TENSOR_MESSAGE_HEADER_BYTES;
    if (incoming_park(kept, 0))
        return kept;
    backend_own_drop(kept);
    return NULL;
}

static void drop(TensorBackend *backend, void *message)
{
    (void)backend;
    backend_own_drop(message);
}

/* ---- room ---- */

static bool is_full(TensorBackend *backend, uint32_t node)
{
    Network *const network = network_of(backend);

    return network_is_full(network, node, FULL_WINDOWS) ||
           (network_lends(network, node, LENT_BLOCK_BYTES) && !network_has_loans(network, node));
}

/* Waits a little until a block comes back: to do without one is not wrong, but slower. */
static void wait_loan(Network *network, uint32_t node)
{
    if (!network_lends(network, node, LENT_BLOCK_BYTES) || network_has_loans(network, node))
        return;
    const int64_t end_ns = monotonic_ns() + LOAN_WAIT_NS;
    do
        sched_yield(); /* its node may want this processor */
    while (!network_has_loans(network, node) && monotonic_ns() < end_ns);
}

static bool wait_room(TensorBackend *backend, uint32_t node, bool (*is_over)(void *data),
                      void *data, int timeout_ms)
{
    Network *const network = network_of(backend);

    wait_loan(network, node);
    return is_over(data) || network_wait_room(network, node, is_over, data, timeout_ms) ||
           is_over(data) || network_is_stopping(network);
}

static const TensorWays ways = {
    .new_message = new_message,
    .share_message = share_message,
    .lend_message = lend_message,
    .revoke = revoke_lent,
    .reads_lent = reads_lent,
    .send = send_message,
    .send_with_next = send_with_next, /* in one packet, if nobody else sends at the moment */
    .forget = forget,
    .best_bytes = best_bytes,
    .keep = keep,
    .drop = drop,
    .is_full = is_full,
    .wait_room = wait_room,
    .outlives_losses = true,
};

static TensorBackend *open_own(const TensorBackendPlace *place, GError **error)
{
    OwnBackend *const own = g_new0(OwnBackend, 1);

    (void)error;
    g_assert(post_office_room_bytes() >= sizeof(OwnPiece)); /* for piece_of */
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
