/* The network of a simulation: a transport whose packets are dropped, doubled, overtaken, delayed,
 * held back while a connection is cut, or lost when it is reset, as the seed says.
 *
 * Threads: those of the simulation; the rest from outside of them, or by sim_after. */
#ifndef TESTS_SUPPORT_SIM_NETWORK_H
#define TESTS_SUPPORT_SIM_NETWORK_H

#include "io/net/transport/transport_ops.h"
#include "tests/support/sim.h"

/* One direction between two nodes. */
typedef struct {
    uint32_t loss_1024, doubling_1024; /* so many packets of 1,024 */
    int64_t least_ns, spread_ns;       /* how long a packet takes: least, and up to spread more */
    uint32_t slow_1024;                /* and so many take up to slow_ns more */
    int64_t slow_ns;
    bool overtakes; /* else nothing overtakes on a channel, as in a stream */
    bool is_cut;
} SimLink;

typedef struct {
    uint32_t n_nodes;
    SimLink usual[SIM_MOST_NODES][SIM_MOST_NODES]; /* what they are at first; from, to */
    bool holds_when_cut; /* what is sent over a cut link waits; else it is dropped */
    bool lends;          /* packets that come are lent */
    bool shares;         /* a packet on its way keeps the sender's memory */
} SimNetworkOptions;

void sim_network_begin(const SimNetworkOptions *options);
void sim_network_end(void);

/* What engines of the simulation take for a transport. */
extern const TransportOps sim_transport;

/* The link may be changed. */
SimLink *sim_network_link(uint32_t from, uint32_t to);

/* The link is not cut; what was held goes out. */
void sim_network_join(uint32_t from, uint32_t to);

/* What is on its way, or held, between two nodes is lost. */
void sim_network_reset(uint32_t from, uint32_t to);

/* The longest time from the beginning on, or between two packets of `from` that `to` took in; the
 * present one counts. */
int64_t sim_network_longest_silence_ns(uint32_t from, uint32_t to);

typedef struct {
    uint64_t n_sent, n_bytes, n_lost, n_doubled, n_overtaken;
} SimNetworkStats;

void sim_network_stats(SimNetworkStats *stats);

#endif
