/* Asks each server. Messages to a server are handled in the order in which they were sent, so it
 * answers when it has taken in what came before. Runs on the caller's thread. */
#include "io/net/fence.h"

void fence_start(PostOffice *office, uint32_t epoch, const _Atomic bool *cancelled,
                 Message *messages, Call *call)
{
    call_begin(call, NULL);
    call_add_parts(call, office->n_servers);
    for (uint32_t server = 0; server < office->n_servers; server++) {
        messages[server] = (Message){ .kind = MESSAGE_FENCE,
                                      .epoch = epoch,
                                      .table = MESSAGE_NO_TABLE,
                                      .server = server,
                                      .node = office->self,
                                      .call = call,
                                      .end = message_end_call };
        post_office_ask(office, &messages[server]);
    }
    post_office_flush(office);
    /* What was registered after the canceller swept would be waited for for ever. One of the two
     * sees the other: the flag is set before the sweep, and looked at after the registration.
     * seq_cst: as whoever cancels sets it. */
    if (call->is_remote && atomic_load_explicit(cancelled, memory_order_seq_cst))
        post_office_cancel(office, epoch);
    call_sent(call);
}
