/* Servers of four nodes, driven by hand: the test handles each message itself, as the owner, and
 * decides which of those between servers arrive. There are no threads, and no network.
 *
 * Two tables have one part each, with two replicas. Their first primaries were on node 3, which is
 * lost. So the primary of each is server 0, with replicas on servers 1 and 2, to which it tells the
 * tasks that begin.
 *
 * A test that uses it is linked with wraps of post_office_push and network_flush_soon. One world at
 * a time.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_ENGINE_REPLICA_WORLD_H
#define TESTS_SUPPORT_ENGINE_REPLICA_WORLD_H

#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_promote.h"
#include "engine/server/replicas/server_replicas.h"
#include "io/net/handler_call.h"

enum { WORLD_NODES = 4, WORLD_KEYS = 8, WORLD_TABLES = 2, WORLD_EPOCH = 1 };

void replica_world_begin(const char *model);
void replica_world_begin_like(const RubatoTableSpec *like); /* its model, shape and storage */
void replica_world_end(void);

Server *replica_world_server(uint32_t number);

/* Of table 0. */
Replica *replica_world_replica(uint32_t server);
FedPart *replica_world_fed(uint32_t server);

/* An empty one. (transfer full) */
RubatoShard *replica_world_shard(void);

/* The server handles what others have sent to it, and what it sends to itself; each is
 * acknowledged. */
void replica_world_deliver(uint32_t to);

/* What is under way arrives, also to a server that has another primary since. */
void replica_world_deliver_all(void);

/* What others have sent to it does not arrive. */
void replica_world_lose_letters(uint32_t to);

/* Whether something of the kind, and about the table, is under way to a server. */
bool replica_world_is_sent(uint32_t to, uint32_t table, uint8_t fed_kind);

/* There is no memory to send the message that is sent after n others. Returns whether it was; -1
 * for n: there is memory again. */
bool replica_world_starve(int n);

/* The server learns where the part of the table is from now on. */
void replica_world_place(uint32_t server, uint32_t table, uint32_t map, uint32_t primary,
                         const uint32_t *replicas, uint32_t n);

/* A worker each on nodes 1 and 2. */
void replica_world_begin_task(uint32_t node);
bool replica_world_try_task(uint32_t node, GError **error);

/* A worker of another node asks the primary of table 0. The caller sets the kind, the request and
 * its number; both stay until the call has ended. */
void replica_world_ask(uint32_t server, Message *message, Call *call);

/* A call of a handler, which the node of a server makes for worker 0. The arguments are the test's
 * until replica_world_end_call. */
typedef struct {
    Message message;
    HandlerCall handler_call;
    Call call;
    unsigned char *arguments;
} WorldCall;

/* Makes it on the rows of a key of table 0, whose primary is that server. All that follows arrives.
 * Its ops, arguments and serial are set. */
void replica_world_call(WorldCall *made, uint32_t server, RubatoKey key, uint64_t clock);

/* It has ended, with this text in its failure; NULL: with none. Frees what it has. */
void replica_world_end_call(WorldCall *made, const char *failure);

/* A worker of the node adds to table 0, whose primary is there. */
void replica_world_add(uint32_t node, Call *call);

/* A node tells a server its clock, by the number of a map; all nodes with workers do so. */
void replica_world_tell_clock(uint32_t server, uint32_t node, uint64_t clock, uint32_t map);
void replica_world_tell_clocks(uint32_t server, uint64_t clock, uint32_t map);

/* Server 2 has lost its replica of table 0, and gets another one: map 3. The first function sends
 * the begin of the image; the second one all of it, which arrives. */
void replica_world_order_again(void);
void replica_world_make_again(void);

/* Node 0 is lost, and server 2 is the primary of table 0, with a replica on server 1: map 4. */
void replica_world_lose_primary(void);

#endif
