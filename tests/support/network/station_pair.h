/* Two stations that talk to each other: a is node 0, b is node 1.
 *
 * Threads: the test's own. A failure fails the case. */
#ifndef TESTS_SUPPORT_NETWORK_STATION_PAIR_H
#define TESTS_SUPPORT_NETWORK_STATION_PAIR_H

#include "tests/support/network/station.h"

typedef struct {
    Station *a, *b;
} StationPair;

/* Two that have not joined, and two that have. */
StationPair station_pair_open(const NetworkConfig *config);
StationPair station_pair_join(const NetworkConfig *config);
void station_pair_close(const StationPair *pair);

/* Takes the next message, which must be this one. */
void station_expect(Station *station, MessageKind kind, uint64_t number, size_t n_bytes);

NetworkStats station_stats(const Station *station);

/* For station_wait_until: all that was sent has been acknowledged. */
bool station_all_acknowledged(void *station);

#endif
