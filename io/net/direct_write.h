/* A direct write: the values of a request are written to a connection straight from the memory of
 * the caller, and are not copied to a packet.
 *
 * DESIGN NOTE
 *
 * A request whose caller keeps its input until the call has ended is sent in packets that have only
 * the head of their message. The values stay where they are (packet.h). The link may need them
 * several times: a packet is sent again after its connection broke. So the memory is the caller's
 * again only when the packet is gone, which is when the other node has acknowledged it, or was
 * lost. Each such packet counts as a part of its call (`end`). Hence the call cannot end before
 * nobody reads there any more, whatever else has answered or cancelled it.
 *
 * A cancelled call may not wait for that, because its node may be one that no longer answers. So a
 * cancellation calls direct_write_revoke() for all packets that are not acknowledged. It copies the
 * values to a block, from which the packet is sent from then on, and ends the part. The packet
 * stays whole, as the link needs it. If there is no memory for the block, the part ends with the
 * packet: the call waits until the node has acknowledged it, or is lost.
 *
 * Each reader holds the lock while it reads, so a revocation waits for it. This wait is short: a
 * reader hands bytes to a socket or a ring that does not block, seals them, or copies them.
 *
 * A caller that writes to its memory all the same may break its own request, and the tag of a
 * packet: then the other node drops the connection, and the packet is sent again.
 *
 * Threads: any; one at a time starts and finishes it. `end` is called with locks of the network
 * held: it may end a part of a call, and nothing more. */
#ifndef RUBATO_IO_NET_DIRECT_WRITE_H
#define RUBATO_IO_NET_DIRECT_WRITE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/link/block_pool.h"

typedef struct {
    const void *bytes; /* of the caller; they stay until `end` is called */
    size_t n_bytes;

    /* Nobody reads the caller's bytes any more. Called once. */
    void (*end)(void *user);
    void *user;
} DirectWriteSource;

typedef struct {
    /* immutable */
    BlockPool *pool;
    DirectWriteSource source;

    pthread_mutex_t lock;
    /* guarded by lock */
    uint8_t *block; /* a copy of the bytes; NULL: the caller's are read */
} DirectWrite;

/* pool NULL: none. It must outlive the direct write. */
void direct_write_start(DirectWrite *direct, BlockPool *pool, const DirectWriteSource *source);

/* The caller's bytes are not read any more. False: there is no memory for the copy. */
bool direct_write_revoke(DirectWrite *direct);

/* Nobody needs the bytes any more. */
void direct_write_finish(DirectWrite *direct);

/* Locks it, and returns where the bytes are; they stay there until direct_write_unlock. */
const uint8_t *direct_write_lock(DirectWrite *direct);
void direct_write_unlock(DirectWrite *direct);

#endif
