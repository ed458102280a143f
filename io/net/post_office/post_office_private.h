/* The post office from inside: what its files share.
 *
 *   post_office.c           actors of this node, requests that wait for an answer, news for others
 *   post_office_again.c     requests that are sent again, to another server
 *   post_office_pieces.c    requests to other nodes, cut into pieces
 *   post_office_handlers.c  calls of handlers, and their answers
 *   post_office_receive.c   requests of other nodes
 *   post_office_clocks.c    clocks between nodes
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_PRIVATE_H
#define RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_PRIVATE_H

#include "io/net/handler_call.h"
#include "io/net/post_office/post_office.h"

/* A request to another node that waits for its answer, or a piece of one. */
struct PendingRequest {
    Call *call; /* NULL: the slot is free */
    RubatoKeys keys;
    char *output;
    DirectRead *direct; /* reads the answer to `output` at this moment; NULL: none does */
    size_t row_bytes;   /* 0: the answer has no rows */
    uint32_t epoch;
    uint32_t node;
    uint64_t id;
    uint32_t next_free;

    /* what it needs to be sent again: see post_office_again.c */
    MessageKind kind;
    uint32_t table, part;
    uint32_t worker;
    uint64_t clock;
    const char *input; /* of its keys; NULL: none */
    size_t input_row_bytes;
    union {
        RubatoTuning tuning;  /* MESSAGE_TUNE */
        uint64_t n_announced; /* MESSAGE_ANNOUNCE: as RubatoRequest.n_announced */
    };

    HandlerAnswer *answer;      /* MESSAGE_HANDLER: where its answer goes; else NULL */
    HandlerCall *handler_call;  /* that comes again, and of which this is a piece; else NULL */
    struct AnswerPiece *pieces; /* that have come of it */
    struct AnswerPiece **pieces_end;
    size_t n_come; /* bytes of them */
};

/* ---- post_office.c ---- */

/* Notes a request to another node, or a piece of one, with the input of its keys. The answer goes
 * to `output`. Returns its id; 0 if there is no memory. */
uint64_t post_office_add_pending(PostOffice *office, const Message *message, const RubatoKeys *keys,
                                 const char *input, char *output);

/* Frees the slot and hands its contents over. From now on only the calling thread writes to the
 * request's output. The lock is held. */
PendingRequest post_office_take_slot(PostOffice *office, uint32_t index);

/* For a frame of a few hundred bytes that a thread may not do without: ends the process if it is
 * NULL. (transfer full) */
Frame *post_office_need_frame(Frame *frame);

/* ---- post_office_pieces.c ---- */

/* How many keys the iteration of an announcement has in all, if the message is cut or is itself a
 * piece; else 0. n_piece: keys of the piece. */
uint64_t post_office_n_announced(const Message *message, size_t n_piece);

/* A frame for these keys of a request, and their input if it is not NULL. NULL: no memory.
 * (transfer full) */
Frame *post_office_make_frame(PostOffice *office, const Message *message, const RubatoKeys *keys,
                              const char *input);

/* Whether the input of a request stays until its call has ended. */
typedef enum {
    POST_OFFICE_INPUT_STAYS, /* then it may be sent from where it lies */
    POST_OFFICE_INPUT_GOES,
} PostOfficeInput;

/* Sends a request to its server on another node. If there is no memory for a piece, its part of the
 * call ends with CALL_NO_MEMORY. Without a call nothing more is sent, and this returns false. */
bool post_office_send_pieces(PostOffice *office, const Message *message, PostOfficeInput input);

/* ---- post_office_handlers.c ---- */

/* The bytes of a call that comes again. NULL: no memory. (transfer full) */
void *post_office_write_call(const HandlerCall *call);

/* Sends the answer to the call of a handler of another node, all but its last frame, which it
 * returns; NULL: there are no bytes. *status: the server's; of the reply. */
Frame *post_office_send_answer(PostOffice *office, uint32_t node, uint64_t request_id, bool is_high,
                               const HandlerCall *call, CallStatus *status);

/* Bytes of an answer whose rest has not come. */
typedef struct AnswerPiece AnswerPiece;
AnswerPiece *post_office_new_piece(const Incoming *incoming);
AnswerPiece **post_office_piece_next(AnswerPiece *piece);
void post_office_free_pieces(AnswerPiece *pieces);

/* Makes the answer of its pieces, which have n_come bytes together, and what has come last. False:
 * no memory. */
bool post_office_take_answer(HandlerAnswer *answer, const AnswerPiece *pieces, size_t n_come,
                             const Incoming *incoming);

/* ---- post_office_receive.c ---- */

/* Sets how much of other nodes' requests the receiving thread may handle itself. */
void post_office_init_receive(PostOffice *office, uint32_t n_own_servers);

/* The receiving thread handles a message of n values itself. It does not handle the waiting
 * messages of a busy server, nor a message that may take long: meanwhile nothing would be received
 * or sent, not even a heartbeat. False: it has not handled it. */
bool post_office_handle_if_short(PostOffice *office, Actor *actor, Message *message, size_t n);

/* ---- post_office_clocks.c ---- */

void post_office_init_clocks(PostOffice *office);
void post_office_clear_clocks(PostOffice *office);

/* A request of high priority goes to a node. Called before it is pushed. */
static inline void post_office_note_high(PostOffice *office, uint32_t node)
{
    /* Relaxed: its worker's clock is stored later, and who tells that clock has seen it. */
    if (!atomic_load_explicit(&office->has_sent_high[node], memory_order_relaxed))
        atomic_store_explicit(&office->has_sent_high[node], true, memory_order_relaxed);
}

/* More has come: passes on the common clocks that have waited for it. Receiving thread. */
void post_office_try_clocks(PostOffice *office);

#endif
