/* All that a part has, as a number, and what its primary and its replicas have of it.
 *
 * Threads: the owner of the shard, or of the server. */
#ifndef TESTS_SUPPORT_ENGINE_SHARD_DIGEST_H
#define TESTS_SUPPORT_ENGINE_SHARD_DIGEST_H

#include "engine/server/server.h"
#include "models/shard/shard.h"

/* A digest of the keys, the bytes of their rows and of the rule's state, in the order of the keys;
 * of the hyper-parameters, and of the counts of bad deltas. */
uint64_t shard_digest(RubatoShard *shard);

/* A part on a server. */
typedef struct {
    bool is_primary;
    bool is_settled;   /* a primary: its last input may still be under way to replicas */
    uint64_t n_inputs; /* that it has had */
    uint64_t digest;   /* of the shard, and of what engines have sent to the part */
    uint32_t n_models; /* of a replica: tasks whose end it has not had */
} PartDigest;

/* False: neither the part nor a replica of it is there. A primary without replicas has had no
 * inputs. */
bool part_digest(const Server *server, uint32_t table, uint32_t part, PartDigest *found);

/* The same without the digest. */
bool part_inputs(const Server *server, uint32_t table, uint32_t part, PartDigest *found);

#endif
