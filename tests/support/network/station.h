/* A network with a handler that records what comes, for tests. Several of them in one process make
 * a cluster over real sockets.
 *
 * Threads: the test's own, which waits for what the I/O thread records. */
#ifndef TESTS_SUPPORT_NETWORK_STATION_H
#define TESTS_SUPPORT_NETWORK_STATION_H

#include <pthread.h>

#include "io/net/network/network.h"

#define STATION_PATIENCE_MS 100000

typedef struct {
    uint16_t version;
    char *text; /* of the body */
    char *address;
    bool is_answer;
    uint64_t asker;
} StationGreeting;

typedef struct {
    Network *network;

    /* Set before the network is started. */
    bool echoes;         /* each request is answered by a reply with its values */
    unsigned most_taken; /* messages that it takes in a batch; 0: any number */

    pthread_mutex_t lock;
    pthread_cond_t changed;

    /* guarded by lock */
    GQueue incoming;  /* of Incoming *, in the order in which they came */
    GQueue greetings; /* of StationGreeting * */
    GString *broken;  /* what was said of broken nodes: a line for each, "1: text" */
    uint64_t n_ticks;
    bool is_held;                    /* it receives nothing until this is false again */
    unsigned n_taken, longest_batch; /* messages of this batch; of the longest that has ended */
} Station;

/* Opens and starts the network of node `self` of n_nodes. If the config has no endpoint, it binds
 * any free port of the loopback, or an address of the transport that RUBATO_TEST_TRANSPORT names.
 * Without an incarnation it has STATION_INCARNATION(self). A failure ends the test. */
Station *station_new(uint32_t self, uint32_t n_nodes, const NetworkConfig *config);

/* Stops its network and frees messages that nobody took. */
void station_free(Station *station);

/* What a peer must know of it to join. */
NetworkPeer station_peer(const Station *station, uint32_t self);

#define STATION_RUN_ID 0x123456789abcdef0u
#define STATION_INCARNATION(self) (1000 + (uint64_t)(self))

/* Joins all of them. */
void stations_join(Station *const *stations, uint32_t n);

/* Waits for the next message; NULL after timeout_ms. (transfer full) */
Incoming *station_take(Station *station, int timeout_ms);

/* Makes its handler wait in the next message that comes, or continue. */
void station_hold(Station *station, bool is_held);

/* The same for the next greeting. (transfer full) */
StationGreeting *station_take_greeting(Station *station, int timeout_ms);
void station_greeting_free(StationGreeting *greeting);

/* Waits until its handler has ticked n more times. */
bool station_wait_ticks(Station *station, uint64_t n);

/* Waits until done(user) holds; checks it with each tick of the station. */
bool station_wait_until(Station *station, bool (*done)(void *user), void *user);

/* A frame of this kind with n bytes of values, which begin with `number` and follow from it. */
Frame *station_frame(MessageKind kind, uint64_t number, size_t n_bytes);

/* The number of a message that station_frame has made. */
uint64_t station_number(const Incoming *incoming);

/* Whether the message is that one. */
bool station_is(const Incoming *incoming, MessageKind kind, uint64_t number, size_t n_bytes);

#endif
