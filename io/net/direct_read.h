/* A direct read: the values of a reply, or of a piece of a tensor, are read from a connection
 * straight into the memory of the thread that waits for them, and are not copied there from a
 * block.
 *
 * DESIGN NOTE
 *
 * A transport that has read the head of a large packet asks whether its values have such a place
 * (DirectReader). The post office finds the request, and starts the direct read. As long as the
 * request waits, it points to the direct read. The caller may free its memory as soon as its call
 * has ended, so a thread that ends the call sees to it first that nothing more is read there:
 *
 * - The reply itself ends it. Then it is complete, and its tag is right.
 * - A cancellation ends it, or another copy of the reply does, which the link has sent again on
 *   another connection. Such a thread calls direct_read_revoke(). It waits until the reader does
 *   not read, copies what has come to a block, and the transport goes on there. So the packet
 *   becomes whole, as its tag and the link need it, and nobody waits for what it brings.
 *
 * This wait is short: a reader never waits for bytes while it has the lock.
 *
 * What a request is to a reply, an operation on a tensor is to its pieces: see
 * engine/collectives/tensor_arrivals.c. There the lock is the exchange's, and the direct read is
 * the operation's until its piece has been taken in, or the operation ends.
 *
 * Bytes may come that are wrong, or only some of them before a connection breaks. Nobody sees them:
 * the call has not ended, and the link brings all of the packet again. A call that fails leaves its
 * caller's rows undefined, as after a reply to some of its pieces.
 *
 * Threads: direct_read_revoke from any, with the lock of the post office, or of the exchange, held,
 * which keeps the direct read alive; the rest from the thread that receives. */
#ifndef RUBATO_IO_NET_DIRECT_READ_H
#define RUBATO_IO_NET_DIRECT_READ_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/link/block_pool.h"

/* Whose piece of a tensor it is. */
typedef struct {
    uint32_t epoch; /* of the task */
    uint32_t node;  /* by which it is sent */
    uint64_t operation;
} DirectPiece;

typedef struct DirectRead DirectRead;
struct DirectRead {
    /* immutable */
    BlockPool *pool;

    /* set when it starts */
    bool is_piece; /* of a tensor, not a reply */
    uint64_t request_id;
    DirectPiece piece;
    size_t n_bytes;

    DirectRead *next; /* for the operation's list; guarded by the exchange's lock */

    pthread_mutex_t lock;
    /* guarded by lock */
    uint8_t *bytes; /* where they go; NULL: to no place, because there was no memory */
    size_t n_come;
    bool is_revoked; /* `bytes` is a block of the pool */
};

void direct_read_init(DirectRead *direct, BlockPool *pool);
void direct_read_clear(DirectRead *direct);

/* The n_bytes of this request go to `to`. The lock of the post office is held. */
void direct_read_start(DirectRead *direct, uint64_t request_id, void *to, size_t n_bytes);

/* The same for a piece of a tensor. The lock of its exchange is held. */
void direct_read_start_piece(DirectRead *direct, const DirectPiece *piece, void *to,
                             size_t n_bytes);

/* Nothing more is read to the caller's memory. */
void direct_read_revoke(DirectRead *direct);

/* Gives its block back, if it has one. No request points to it any more. */
void direct_read_finish(DirectRead *direct);

/* Locks it and returns where its bytes are, of which n_come have come; NULL: there is no memory for
 * them. Until direct_read_unlock they stay there. */
uint8_t *direct_read_lock(DirectRead *direct);

/* n more bytes have come. */
void direct_read_unlock(DirectRead *direct, size_t n);

#endif
