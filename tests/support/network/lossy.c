#include "tests/support/network/lossy.h"

static WireFaults faults;
static TransportOps lossy_ops;

static Transport *lossy_create(const TransportConfig *config, GError **error)
{
    TransportConfig with_faults = *config;

    with_faults.faults = &faults;
    Transport *const transport = transport_faulty.create(&with_faults, error);
    if (transport != NULL)
        transport->ops = &lossy_ops;
    return transport;
}

const TransportOps *lossy_transport(const Lossy *lossy)
{
    faults.of_packets = lossy->of_packets;
    faults.change = lossy->change;
    lossy_set_dropping(false);
    lossy_ops = transport_faulty;
    lossy_ops.name = "lossy";
    lossy_ops.create = lossy_create;
    return &lossy_ops;
}

void lossy_set_dropping(bool drops_all)
{
    atomic_store(&faults.drops_all, drops_all);
}
