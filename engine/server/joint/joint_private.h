/* All parts of a table at once, from inside: what one worker (server_joint.c) and several
 * (joint_several.c) do with the servers, and what both need (joint_parts.c).
 *
 * Threads: joint_find_servers any worker; joint_find_parts one that owns, shares or reads the
 * servers; the rest one that owns them. */
#ifndef RUBATO_ENGINE_SERVER_JOINT_JOINT_PRIVATE_H
#define RUBATO_ENGINE_SERVER_JOINT_JOINT_PRIVATE_H

#include "engine/server/server_private.h"
#include "models/shard/joint_shards.h"
#include "tables/client/client.h"

/* The servers, and what they have of the table. */
typedef struct {
    uint32_t n;
    Actor *actors[JOINT_SHARDS_MOST];
    Binding *bindings[JOINT_SHARDS_MOST];
    RubatoShard *shards[JOINT_SHARDS_MOST]; /* of part i */
} Joint;

/* Finds the servers of all parts. False: one of them has more than one part, or is on another node.
 */
bool joint_find_servers(const TableRoute *route, Joint *joint);

/* Lends the tokens first, if the worker asks for it. */
void joint_give_servers_back(const Joint *joint, const JointAsk *ask);

/* Finds what the servers have. False: a part has moved away, or has got replicas, or its server
 * counts messages. */
bool joint_find_parts(const TableRoute *route, Joint *joint);

/* Brings all parts the clock of a Get and the whole Adds that it makes due, before the turn `end`,
 * as far as that is possible. What is not done here is done for each part. */
void joint_bring_whole(Joint *joint, const TableRoute *route, uint64_t clock, uint64_t end);

/* A part takes the announcement of these keys for the ask's clock, and then that clock. */
void joint_begin_iteration(RubatoModel *model, const JointAsk *ask, const RubatoKeys *keys);

/* Answers what the model of a part has released. False: the server has starved. */
bool joint_empty_outbox(const Joint *joint, uint32_t part);

/* The owner brings the clock, reads, and gives the servers back. */
bool joint_get_from(Joint *joint, const TableRoute *route, const JointAsk *ask,
                    uint64_t *min_clock);

/* The owner adds, and gives the servers back. */
bool joint_add_to(Joint *joint, const TableRoute *route, const JointAsk *ask);

/* More workers than processors whose Adds are deferred; workers that share the servers; and those
 * that take turns. */
extern const JointOps joint_owning_ops, joint_shared_ops, joint_turn_ops;

#endif
