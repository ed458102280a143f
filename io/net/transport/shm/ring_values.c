/* Packets whose values lie in a ring alone: see ring_values.h. */
#include "io/net/transport/shm/ring_values.h"

#include <assert.h>
#include <string.h>

/* Relaxed: a packet that only the ring has cannot get another holder. One that the link drops at
 * this moment counts as held. */
static bool others_have(const Packet *packet)
{
    return atomic_load_explicit(&packet->refs, memory_order_relaxed) > 1;
}

void ring_values_add(RingValues *kept, Packet *packet, const uint8_t *values, uint64_t place)
{
    assert(!packet_is_in_ring(packet));
    packet_ref(packet);
    packet->ring_place = place;
    packet->next_in_ring = NULL;
    atomic_store_explicit(&packet->in_ring, values, memory_order_relaxed);
    if (kept->last == NULL)
        kept->first = packet;
    else
        kept->last->next_in_ring = packet;
    kept->last = packet;
}

/* Its values are where they are, or nobody needs them. */
static void forget_first(RingValues *kept)
{
    Packet *const packet = kept->first;

    kept->first = packet->next_in_ring;
    if (kept->first == NULL)
        kept->last = NULL;
    atomic_store_explicit(&packet->in_ring, NULL, memory_order_relaxed);
    packet_unref(packet);
}

void ring_values_thin(RingValues *kept)
{
    while (kept->first != NULL && !others_have(kept->first))
        forget_first(kept);
}

void ring_values_drop_first(RingValues *kept)
{
    Packet *const packet = kept->first;

    if (others_have(packet))
        memcpy(packet->bytes + packet->size - packet->values_bytes,
               atomic_load_explicit(&packet->in_ring, memory_order_relaxed), packet->values_bytes);
    forget_first(kept);
}

void ring_values_clear(RingValues *kept)
{
    while (kept->first != NULL)
        ring_values_drop_first(kept);
}
