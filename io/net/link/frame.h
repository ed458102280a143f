/* A frame: one message on its way to another node, in one buffer.
 *
 * The buffer has room for the headers in front. So a message that is sent alone needs no copy: it
 * is sent, kept until it is acknowledged, and sent again from the place where its values were
 * gathered.
 *
 * Threads: one owner at a time. network_push takes it over. */
#ifndef RUBATO_IO_NET_LINK_FRAME_H
#define RUBATO_IO_NET_LINK_FRAME_H

#include "io/net/direct_write.h"
#include "io/net/link/block_pool.h"
#include "io/net/link/wire.h"

typedef struct Frame Frame;

/* A frame for the message of the header: it has room for key_bytes and value_bytes. Keys and values
 * are not initialised. NULL if there is no memory, or if they need more than
 * WIRE_MAX_PAYLOAD_BYTES. (transfer full) */
Frame *frame_new(const WireHeader *header);

/* The same with memory of a pool, which must outlive the frame. NULL: no pool. */
Frame *frame_new_from(BlockPool *pool, const WireHeader *header);

/* A frame whose last values lie in the caller's memory and are written from there (direct_write.h).
 * It has room for keys, and for as many values in front of these as value_bytes is more than
 * source->n_bytes. Both are multiples of 8, and so large that the frame is sent alone
 * (packet_is_alone). NULL if there is no memory; then source->end is not called. (transfer full) */
Frame *frame_new_direct(BlockPool *pool, const WireHeader *header, const DirectWriteSource *source);

/* NULL is allowed. */
void frame_free(Frame *frame);

/* The caller may edit it until the frame is pushed. value_bytes may be lowered, never raised;
 * key_bytes must not change. */
WireHeader *frame_header(Frame *frame);

/* Room for the keys, aligned to 8: written by frame_set_keys or wire_store_key. (transfer none) */
void *frame_keys(Frame *frame);

/* Writes the list of keys; n is the request's n_keys. */
void frame_set_keys(Frame *frame, const RubatoKeys *keys);

/* Room for the values, aligned to 8; of a frame that frame_new_direct has made, for the first of
 * them. (transfer none) */
void *frame_values(Frame *frame);

#endif
