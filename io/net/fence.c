/* Asks each server, and for each part with replicas its server once more. Messages to a server are
 * handled in the order in which they were sent, so it answers when it has taken in what came
 * before. Runs on the caller's thread. */
#include "io/net/fence.h"

static void ask(PostOffice *office, uint32_t epoch, const FencedPart *part, Message *message,
                Call *call)
{
    *message = (Message){ .kind = MESSAGE_FENCE,
                          .epoch = epoch,
                          .table = part->table,
                          .part = part->part,
                          .server = part->server,
                          .node = office->self,
                          .call = call,
                          .end = message_end_call };
    post_office_ask(office, message);
}

void fence_start(PostOffice *office, uint32_t epoch, const _Atomic bool *cancelled,
                 const FencedPart *parts, uint32_t n_parts, Message *messages, Call *call)
{
    call_begin(call, NULL);
    call_add_parts(call, office->n_servers + n_parts);
    for (uint32_t server = 0; server < office->n_servers; server++)
        ask(office, epoch, &(FencedPart){ .table = MESSAGE_NO_TABLE, .server = server },
            &messages[server], call);
    for (uint32_t i = 0; i < n_parts; i++)
        ask(office, epoch, &parts[i], &messages[office->n_servers + i], call);
    post_office_flush(office);
    if (call->is_remote) /* a node that is lost does not answer */
        post_office_end_fences(office);
    /* A call that is registered after the canceller's sweep would never end. One of the two sees
     * the other: the canceller sets the flag before its sweep, and this thread reads the flag
     * after it has registered the call. seq_cst: as in the store. */
    if (call->is_remote && atomic_load_explicit(cancelled, memory_order_seq_cst))
        post_office_cancel(office, epoch);
    call_sent(call);
}
