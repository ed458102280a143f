/* Asks each server, and for each part with replicas its server once more. Messages to a server are
 * handled in the order in which they were sent, so it answers when it has taken in what came
 * before. Runs on the caller's thread.
 *
 * Which servers need not be asked. Requests to a node have positions (network_pushed). When all
 * servers of the node have answered a fence, all requests up to the fence's own position are taken
 * in. If the position is still the same at the next fence, nothing was sent since. The same holds
 * before the first fence, for the positions at which the memory was made. A position is
 * remembered only if no other thread has pushed a request while the fence was pushed, because that
 * request might have come behind the fence. A node that was ever sent a request of high priority is
 * always asked: such requests have no position. So are all if parts have replicas, whose requests
 * may be sent again to other nodes. */
#include "io/net/fence.h"

#include <pthread.h>
#include <string.h>

#define UNKNOWN UINT64_MAX /* no position */

/* One fence at a time uses it. That the next one, of another thread, comes later may be known by
 * the word of another process alone; so a lock orders the two. */
struct FenceMemory {
    pthread_mutex_t lock;
    uint32_t n_nodes;
    /* by node: up to where its servers have taken requests in; where the last fence began; up to
     * where they will have when they have answered it */
    uint64_t *reached, *before, *asked;
    bool has_asked; /* `asked` is of the last fence */
};

FenceMemory *fence_memory_new(const PostOffice *office)
{
    FenceMemory *const memory = g_new0(FenceMemory, 1);

    pthread_mutex_init(&memory->lock, NULL);
    memory->n_nodes = office->n_nodes;
    memory->before = g_new0(uint64_t, office->n_nodes);
    memory->asked = g_new0(uint64_t, office->n_nodes);
    memory->reached = g_new(uint64_t, office->n_nodes);
    for (uint32_t node = 0; node < office->n_nodes; node++)
        memory->reached[node] =
            node == office->self ? UNKNOWN : network_pushed(office->network, node);
    return memory;
}

void fence_memory_free(FenceMemory *memory)
{
    if (memory == NULL)
        return;
    pthread_mutex_destroy(&memory->lock);
    g_free(memory->reached);
    g_free(memory->before);
    g_free(memory->asked);
    g_free(memory);
}

void fence_memory_note(FenceMemory *memory)
{
    pthread_mutex_lock(&memory->lock);
    if (memory->has_asked)
        memcpy(memory->reached, memory->asked, memory->n_nodes * sizeof *memory->reached);
    pthread_mutex_unlock(&memory->lock);
}

static void note_positions(FenceMemory *memory, const PostOffice *office)
{
    for (uint32_t node = 0; node < office->n_nodes; node++)
        if (node != office->self)
            memory->asked[node] = memory->before[node] = network_pushed(office->network, node);
}

/* Whether the server's node has taken in everything before. */
static bool need_not_ask(const FenceMemory *memory, const PostOffice *office, uint32_t server)
{
    const uint32_t node = office->servers[server].node;

    return node != office->self && memory->reached[node] == memory->before[node] &&
           /* relaxed: as in post_office_note_high */
           !atomic_load_explicit(&office->has_sent_high[node], memory_order_relaxed);
}

/* The fences were pushed. */
static void check_positions(FenceMemory *memory, const PostOffice *office)
{
    for (uint32_t node = 0; node < office->n_nodes; node++)
        if (node != office->self && network_pushed(office->network, node) != memory->asked[node])
            memory->asked[node] = UNKNOWN;
}

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

/* Asks all servers that may have something to take in. */
static void ask_servers(PostOffice *office, uint32_t epoch, FenceMemory *memory, Message *messages,
                        Call *call)
{
    const size_t fence_bytes = wire_message_bytes(&(WireHeader){ .kind = MESSAGE_FENCE });

    if (memory != NULL)
        note_positions(memory, office);
    for (uint32_t server = 0; server < office->n_servers; server++) {
        if (memory != NULL && need_not_ask(memory, office, server))
            continue;
        call_add_parts(call, 1);
        ask(office, epoch, &(FencedPart){ .table = MESSAGE_NO_TABLE, .server = server },
            &messages[server], call);
        if (memory != NULL)
            memory->asked[office->servers[server].node] += fence_bytes;
    }
    if (memory != NULL)
        check_positions(memory, office);
}

void fence_start(PostOffice *office, uint32_t epoch, const _Atomic bool *cancelled,
                 const FencedPart *parts, uint32_t n_parts, FenceMemory *memory, Message *messages,
                 Call *call)
{
    call_begin(call, NULL);
    if (memory != NULL && office->n_nodes > 1) {
        pthread_mutex_lock(&memory->lock);
        memory->has_asked = n_parts == 0;
        ask_servers(office, epoch, n_parts == 0 ? memory : NULL, messages, call);
        pthread_mutex_unlock(&memory->lock);
    } else {
        ask_servers(office, epoch, NULL, messages, call);
    }
    call_add_parts(call, n_parts);
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
