/* What nodes send to each other for a collective on a tensor: the body of a MESSAGE_TENSOR.
 *
 * As bytes: kind 4; code 4; number of the operation 8; place 8; the piece. The task's epoch is in
 * the message's header. What a piece may be at its place, the operation knows: tensor_flow.c.
 *
 * A piece that lies in memory from which its receiver reads it (io/net/transport/lent_memory.h) has
 * TENSOR_MESSAGE_LENT added to its kind, and as bytes: block 2; reader 2; use 4; its size 8.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_MESSAGE_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/net/transport/lent_memory.h"

enum {
    TENSOR_MESSAGE_HEADER_BYTES = 24,
    TENSOR_MESSAGE_LOAN_BYTES = 16,
    TENSOR_MESSAGE_MOST_BYTES = 4 << 20,
    TENSOR_MESSAGE_LENT = 256,
};

typedef enum {
    TENSOR_MESSAGE_PART = 1, /* values that are to be combined */
    TENSOR_MESSAGE_RESULT,   /* values that are combined */
    TENSOR_MESSAGE_SIZES,    /* how many rows follow */
    TENSOR_MESSAGE_ROWS,     /* rows that are gathered */
    TENSOR_MESSAGE_FAILURE,  /* the sender could not do its part */
    TENSOR_MESSAGE_DOTS,     /* of Adasum: dot products of workers' values in a segment */
    TENSOR_MESSAGE_BITS,     /* what its sender tells in a round (tensor_rounds.h) */
    TENSOR_MESSAGE_END,
} TensorMessageKind;

typedef struct {
    TensorMessageKind kind;
    uint32_t code;     /* of a FAILURE: CONTROL_CODE(…); else 0 */
    uint64_t number;   /* of the operation: of its verdict, or of a round; of BITS: the round */
    uint64_t place;    /* the number of the chunk, or of the first of several */
    const void *bytes; /* of a FAILURE: a text */
    size_t n_bytes;

    bool is_direct; /* bytes: where tensor_flow_place said */
    bool is_lent;   /* bytes: NULL when it is read */
    LentPlace loan; /* if it is */
} TensorMessage;

/* Whether pieces of that kind may lie in memory that their sender may change while they are read:
 * any values of them are possible. */
bool tensor_message_may_be_lent(TensorMessageKind kind);

/* Writes TENSOR_MESSAGE_HEADER_BYTES; the bytes of the piece belong behind them. Of a piece that is
 * lent, TENSOR_MESSAGE_LOAN_BYTES more, and that is all. */
void tensor_message_write(const TensorMessage *message, void *header);

/* Reads a stranger's bytes. The piece stays where it lies. NULL, or what is wrong. */
const char *tensor_message_read(const void *bytes, size_t n, TensorMessage *message);

#endif
