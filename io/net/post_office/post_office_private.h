/* The post office from inside: what its files share.
 *
 *   post_office.c           actors of this node, requests that wait for an answer, news for others
 *   post_office_pieces.c    requests to other nodes, cut into pieces
 *   post_office_handlers.c  calls of handlers, and their answers
 *   post_office_receive.c   requests and clocks of other nodes
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_PRIVATE_H
#define RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_PRIVATE_H

#include "io/net/handler_call.h"
#include "io/net/post_office/post_office.h"

/* ---- post_office.c ---- */

/* Notes a request to another node. The answer to these keys goes to `output`. Returns its id; 0 if
 * there is no memory. */
uint64_t post_office_add_pending(PostOffice *office, const Message *message, const RubatoKeys *keys,
                                 char *output);

/* For a frame of a few hundred bytes that a thread may not do without: ends the process if it is
 * NULL. (transfer full) */
Frame *post_office_need_frame(Frame *frame);

/* ---- post_office_pieces.c ---- */

/* Sends a request to its server on another node. If there is no memory for a piece, its part of the
 * call ends with CALL_NO_MEMORY. Without a call nothing more is sent, and this returns false. */
bool post_office_send_pieces(PostOffice *office, const Message *message);

/* ---- post_office_handlers.c ---- */

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

#endif
