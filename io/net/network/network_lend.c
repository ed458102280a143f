/* Memory from which other nodes of this host read values themselves: see network.h.
 *
 * Threads: any, except network_borrow. */
#include "io/net/network/network_private.h"
#include "io/net/transport/lent_memory.h"

#define LEAST_BYTES ((size_t)4 << 10) /* copying fewer costs less than a block that comes back */

static Transport *transport_to(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    for (size_t i = 0; peer != NULL && i < network->n_transports; i++)
        if (network->transports[i]->ops == peer->transport)
            return network->transports[i];
    return NULL;
}

/* NULL: none goes to the node. */
static LentMemory *memory_for(const Network *network, uint32_t node)
{
    Transport *const transport = network->authenticate ? NULL : transport_to(network, node);

    return transport != NULL && transport->ops->lends != NULL ? transport->ops->lends(transport)
                                                              : NULL;
}

/* There is one at most, whoever has the node's place now: the process to which a block was lent may
 * have been lost, and another one be reached in another way. */
static LentMemory *own_memory(const Network *network)
{
    LentMemory *memory = NULL;

    for (size_t i = 0; i < network->n_transports && memory == NULL; i++)
        if (network->transports[i]->ops->lends != NULL)
            memory = network->transports[i]->ops->lends(network->transports[i]);
    return memory;
}

bool network_lends(const Network *network, uint32_t node, size_t n_bytes)
{
    return n_bytes >= LEAST_BYTES && n_bytes <= LENT_BLOCK_BYTES &&
           memory_for(network, node) != NULL;
}

bool network_has_loans(const Network *network, uint32_t node)
{
    LentMemory *const memory = memory_for(network, node);

    return memory != NULL && lent_memory_has_room(memory);
}

static bool is_gone(void *user, uint32_t node, uint64_t incarnation)
{
    const Peer *const peer = network_peer(user, node);

    return peer->incarnation != incarnation || peer_is_gone(peer);
}

bool network_lend(const Network *network, uint32_t node, size_t n_bytes, NetworkLoan *loan)
{
    LentMemory *const memory = memory_for(network, node);

    (void)n_bytes; /* a block has room for all that network_lends takes */
    if (memory == NULL)
        return false;
    void *const values = lent_memory_take(memory, node, network_peer(network, node)->incarnation,
                                          is_gone, (void *)(uintptr_t)network, &loan->place);
    if (values == NULL)
        return false;
    loan->values = values;
    return true;
}

bool network_share_loan(const Network *network, uint32_t node, LentPlace first, LentPlace *place)
{
    LentMemory *const memory = memory_for(network, node);

    return memory != NULL &&
           lent_memory_share(memory, first, node, network_peer(network, node)->incarnation, place);
}

void network_note_loan(const Network *network, uint32_t node, LentPlace place)
{
    (void)node;
    lent_memory_sent(own_memory(network), place);
}

void network_end_loan(const Network *network, uint32_t node, LentPlace place)
{
    (void)node;
    lent_memory_take_back(own_memory(network), place);
}

BorrowedMemory *network_borrow(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);
    Transport *const transport = transport_to(network, node);

    return transport == NULL || transport->ops->borrows == NULL
               ? NULL
               : transport->ops->borrows(transport, node, peer->incarnation);
}
