/* The simulated network: a transport whose packets are dropped, doubled, overtaken, delayed, held
 * back while a connection is cut, or lost when it is reset, as the seed decides.
 *
 * Threads: those of the simulation; the rest from outside of them, or by sim_after. */
#ifndef TESTS_SUPPORT_SIM_SIM_NETWORK_H
#define TESTS_SUPPORT_SIM_SIM_NETWORK_H

#include "io/net/transport/transport_ops.h"
#include "tests/support/sim/sim.h"

/* Between so many nodes links may differ. */
#define SIM_MOST_LINKED 8

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
    SimLink usual[SIM_MOST_LINKED][SIM_MOST_LINKED]; /* at the beginning; from, to; those of more
                                                      * nodes repeat */
    bool holds_when_cut; /* packets over a cut link wait; else they are dropped */
    bool lends;          /* packets that come are lent */
    bool shares;         /* a packet on its way keeps the sender's memory */
} SimNetworkOptions;

void sim_network_begin(const SimNetworkOptions *options);
void sim_network_end(void);

/* The transport of the simulation's engines. */
extern const TransportOps sim_transport;

/* The link may be changed. */
SimLink *sim_network_link(uint32_t from, uint32_t to);

/* The link is no longer cut; held packets are sent. */
void sim_network_join(uint32_t from, uint32_t to);

/* Packets between two nodes that are on their way, or held, are lost. */
void sim_network_reset(uint32_t from, uint32_t to);

/* The longest silence of `from` as `to` heard it: from the beginning to the first packet, between
 * two packets, or since the last one. */
int64_t sim_network_longest_silence_ns(uint32_t from, uint32_t to);

/* The longest time for which nothing that one node sent to another was read there: from the sending
 * of a packet until that packet or a later one is read. */
int64_t sim_network_longest_outage_ns(uint32_t from, uint32_t to);

/* The longest time that a packet and an answer to it may have taken, whatever overtook them: the
 * longest ways of single packets there and back, so far. */
int64_t sim_network_longest_round_trip_ns(uint32_t a, uint32_t b);

typedef struct {
    uint64_t n_sent, n_bytes, n_lost, n_doubled, n_overtaken;
} SimNetworkStats;

void sim_network_stats(SimNetworkStats *stats);

#endif
