/* A server driven by hand: that of node 0 of two. The test handles each message itself, as the
 * owner; there are no threads, and no network.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_ENGINE_SERVER_RIG_H
#define TESTS_SUPPORT_ENGINE_SERVER_RIG_H

#include "engine/server/server.h"

/* Node SERVER_RIG_OTHER has no server. Table SERVER_RIG_ADAM has an update rule. */
enum {
    SERVER_RIG_KEYS = 8,
    SERVER_RIG_TABLES = 3,
    SERVER_RIG_OTHER = 1,
    SERVER_RIG_ADAM = 2,
};

/* A worker on each node. */
typedef struct {
    PostOffice office;
    Server server;
    RubatoTableSpec specs[SERVER_RIG_TABLES];
} ServerRig;

/* Each table has one part. */
void server_rig_init(ServerRig *rig, const char *model);
void server_rig_clear(ServerRig *rig);

/* The other node has a server, too. */
void server_rig_add_server(ServerRig *rig);

void server_rig_begin_task(ServerRig *rig, uint32_t epoch, uint32_t table);
void server_rig_begin_task_of(ServerRig *rig, uint32_t epoch, uint32_t table,
                              const RubatoTableSpec *spec);
void server_rig_end_task(ServerRig *rig, uint32_t epoch);

/* A request that is handled at once, or parked in a model. */
typedef struct {
    Message message;
    Call call;
    RubatoKey key;
    int64_t value;
} RigAsked;

void server_rig_ask(ServerRig *rig, RigAsked *asked);

/* Of worker 0 and key 0. */
void server_rig_get(ServerRig *rig, RigAsked *asked, uint32_t epoch, uint32_t table,
                    uint64_t clock);
CallStatus server_rig_add(ServerRig *rig, uint32_t epoch, uint32_t table, int64_t delta);

void server_rig_tell_clock(ServerRig *rig, uint32_t epoch, uint32_t table, uint32_t source,
                           uint64_t clock);
void server_rig_tell_clock_by(ServerRig *rig, uint32_t epoch, uint32_t table, uint32_t map,
                              uint32_t source, uint64_t clock);

#endif
