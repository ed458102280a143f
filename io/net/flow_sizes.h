/* How much is sent at once, and how much may be under way: numbers with which an engine is made.
 * All engines have the same, except those of tests, which use small ones to reach limits with
 * little data. Nodes need not agree on them.
 *
 * Threads: any; they do not change. */
#ifndef RUBATO_IO_NET_FLOW_SIZES_H
#define RUBATO_IO_NET_FLOW_SIZES_H

#include <stddef.h>

typedef struct {
    /* The rows, or the keys of a list, that one message to another node carries; up to
     * POST_OFFICE_MAX_VALUE_BYTES. Larger requests become several, so that one node gathers a piece
     * while the other scatters the one before, and pieces stay in the processors' caches on their
     * way. If bytes are only copied (near), smaller pieces are better: with their headers they are
     * one record of a ring (ring_piece_bytes), and are read where they lie. */
    size_t piece_bytes, near_piece_bytes;

    /* The same to a node to which requests of high priority are sent. Such a request waits for one
     * piece at least, which is long beside a round trip in shared memory (near). */
    size_t high_piece_bytes, near_high_piece_bytes;

    /* Pieces of a request that are smaller together wait for the next ones. */
    size_t worth_sending_bytes;

    /* The most bytes of small messages in one packet. */
    size_t joined_bytes;

    /* The most bytes that are packed before the sending thread checks its other duties. */
    size_t turn_bytes;

    /* Requests under way to one node, of all workers of a node: see network_wait_room. */
    size_t window_bytes;

    /* Packets on their way to one node without an acknowledgement, replies included. */
    size_t out_bytes;

    /* The same while there are requests or replies of high priority, which cannot overtake
     * these. */
    size_t high_out_bytes, near_high_out_bytes;

    /* Requests of one node that were not handled, and what is kept for its parked Gets; 0: as
     * NetworkConfig says. */
    size_t taken_bytes, parked_bytes;

    /* The most bytes that one worker may have waiting in the mailboxes of busy local servers. */
    size_t mailbox_bytes;

    /* Tickets of Gets that other nodes have not answered, of one worker on one table: their keys
     * and rows, and what is kept for each. */
    size_t ticket_bytes;

    /* Rows in a process cache; beyond this it forgets those that are not being fetched. */
    size_t cache_bytes;
} FlowSizes;

/* A window of 4 MiB is enough for 4 GB/s if an answer takes a millisecond. A larger one would not
 * fit into the processors' caches. */
#define FLOW_SIZES_USUAL                                     \
    ((FlowSizes){ .piece_bytes = (size_t)512 << 10,          \
                  .near_piece_bytes = (size_t)127 << 10,     \
                  .high_piece_bytes = (size_t)64 << 10,      \
                  .near_high_piece_bytes = (size_t)16 << 10, \
                  .worth_sending_bytes = (size_t)32 << 10,   \
                  .joined_bytes = (size_t)64 << 10,          \
                  .turn_bytes = (size_t)1 << 20,             \
                  .window_bytes = (size_t)4 << 20,           \
                  .out_bytes = (size_t)8 << 20,              \
                  .high_out_bytes = (size_t)64 << 10,        \
                  .near_high_out_bytes = (size_t)32 << 10,   \
                  .mailbox_bytes = (size_t)32 << 20,         \
                  .ticket_bytes = (size_t)16 << 20,          \
                  .cache_bytes = (size_t)256 << 20 })

#endif
