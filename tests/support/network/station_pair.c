/* See station_pair.h. */
#include "tests/support/network/station_pair.h"

#include <check.h>

StationPair station_pair_open(const NetworkConfig *config)
{
    return (StationPair){ station_new(0, 2, config), station_new(1, 2, config) };
}

StationPair station_pair_join(const NetworkConfig *config)
{
    const StationPair pair = station_pair_open(config);

    stations_join((Station *const[]){ pair.a, pair.b }, 2);
    return pair;
}

void station_pair_close(const StationPair *pair)
{
    station_free(pair->a);
    station_free(pair->b);
}

void station_expect(Station *station, MessageKind kind, uint64_t number, size_t n_bytes)
{
    Incoming *const incoming = station_take(station, STATION_PATIENCE_MS);

    ck_assert_msg(incoming != NULL, "message %u did not come", (unsigned)number);
    ck_assert_msg(station_is(incoming, kind, number, n_bytes), "not message %u but %u of kind %d",
                  (unsigned)number, (unsigned)station_number(incoming), incoming->header.kind);
    incoming_free(incoming);
}

NetworkStats station_stats(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats;
}

bool station_all_acknowledged(void *station)
{
    const NetworkStats stats = station_stats(station);

    return stats.unacked_packets == 0 && stats.unacked_bytes == 0;
}
