/* Pieces of tensors that are read from a connection straight to where they belong, in the output of
 * a worker: see io/net/direct_read.h.
 *
 * DESIGN NOTE
 *
 * A transport that has the head of a large packet asks whether its values have a place. The flow
 * judges the head as it would judge the message, and so names no place that is not of this piece,
 * of its size, and still to come. Until the message has come, the operation knows the direct read.
 * It lets go of it, under the lock,
 *
 * - when the message is taken in. Then all bytes are there, their tag is right, and nothing more is
 *   written;
 * - when the connection breaks, and the packet does not come this time;
 * - when another message of the same node is taken in: the same packet, which the link has sent
 *   again on another connection. It is copied to the place, so the first read is revoked before;
 * - when the operation ends, for whatever reason: each end takes the operation out of the list of
 *   those that run, and revokes what is left. Only then its calls end, and workers have their
 *   arrays again.
 *
 * So no bytes are written to an array whose call has ended. A read that was revoked goes on in a
 * block, which is gone when the message was received: so if its operation has ended, it is dropped,
 * and never kept as if it had come early.
 *
 * A piece that is not complete may have left some of its bytes. The output is undefined if the
 * operation fails, and else the whole piece comes again. If the output is the input, too, its
 * values were sent before: a node makes no result of a value that it has not got.
 *
 * Threads: any, with the lock, as tensor_exchange_private.h says. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

static bool has_one_of(const Operation *operation, uint32_t node)
{
    const DirectRead *direct = operation->directs;

    while (direct != NULL && direct->piece.node != node)
        direct = direct->next;
    return direct != NULL;
}

bool tensor_exchange_begin_direct(TensorExchange *exchange, const TensorMessage *message,
                                  const DirectPiece *piece, DirectRead *direct)
{
    uint8_t *place = NULL;

    pthread_mutex_lock(&exchange->lock);
    Operation *const operation = g_hash_table_lookup(exchange->running, &piece->operation);
    if (operation != NULL && !exchange->is_lost[piece->node] && !has_one_of(operation, piece->node))
        place = tensor_flow_place(operation->flow, piece->node, message);
    if (place != NULL) {
        direct_read_start_piece(direct, piece, place, message->n_bytes);
        direct->next = operation->directs;
        operation->directs = direct;
    }
    pthread_mutex_unlock(&exchange->lock);
    return place != NULL;
}

void tensor_exchange_end_direct(TensorExchange *exchange, DirectRead *direct)
{
    pthread_mutex_lock(&exchange->lock);
    Operation *const operation = g_hash_table_lookup(exchange->running, &direct->piece.operation);
    DirectRead **at = operation == NULL ? NULL : &operation->directs;

    while (at != NULL && *at != NULL && *at != direct)
        at = &(*at)->next;
    if (at != NULL && *at != NULL)
        *at = direct->next;
    pthread_mutex_unlock(&exchange->lock);
}

void arrivals_revoke(Operation *operation)
{
    for (; operation->directs != NULL; operation->directs = operation->directs->next)
        direct_read_revoke(operation->directs);
}

/* Its memory could not be written to: it fails where it is copied, as if there was no direct
 * read. */
static void copy_to_place(const Operation *operation, uint32_t node, TensorMessage *message)
{
    uint8_t *const place = tensor_flow_place(operation->flow, node, message);

    if (place != NULL) /* else it fails, and its bytes are not looked at */
        memcpy(place, message->bytes, message->n_bytes);
    message->bytes = place;
}

bool arrivals_take(Operation *operation, uint32_t node, TensorMessage *message)
{
    bool is_known = !message->is_direct;
    DirectRead **at = &operation->directs;

    while (*at != NULL) {
        DirectRead *const direct = *at;

        if (direct->piece.node != node) {
            at = &direct->next;
            continue;
        }
        *at = direct->next;
        if (!message->is_direct || direct->bytes != message->bytes) {
            direct_read_revoke(direct);
            continue;
        }
        is_known = true;
        if (direct->is_revoked)
            copy_to_place(operation, node, message);
    }
    return is_known;
}
