#include "tests/support/network/lossy.h"

#include <string.h>

static WireFaults faults;

WireFaults *lossy_faults(const Lossy *lossy)
{
    faults.of_packets = lossy->of_packets;
    faults.change = lossy->change;
    lossy_set_dropping(false);
    return &faults;
}

void lossy_set_dropping(bool drops_all)
{
    atomic_store(&faults.drops_all, drops_all);
}

Packet *lossy_copy(const Packet *packet)
{
    Packet *const copy = packet_new(packet->size);

    g_assert(copy != NULL);
    memcpy(copy->bytes, packet->bytes, packet->size);
    return copy;
}
