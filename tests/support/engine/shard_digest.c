/* Digests of parts. Two that differ in one bit of any row, or of what belongs to rows, differ.
 *
 * Rows count in the order of their keys, and not in that in which the storage lists them. Hash
 * storage puts a key that finds its home bucket full into a later one, so the list depends on the
 * order in which keys came, and on the sizes that segments had then. A replica that was made got
 * the keys in the order of the primary's list. Its list may thus be another one, with the same
 * rows. Nothing that an input does depends on that: replicas are told which rows are evicted, and
 * handlers that write are refused. Those that read get rows in any order. */
#include "tests/support/engine/shard_digest.h"

#include <stdlib.h>
#include <string.h>

#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_replicas.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/spec.h"

static uint64_t add_bytes(uint64_t digest, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < n; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return digest;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

static uint64_t add_ragged_rows(uint64_t digest, RubatoShard *shard, const RubatoKeys *keys)
{
    HandlerCall call = { .ops = ragged_find("ragged.get"), .arguments = "" };

    handler_run(&call, shard, keys);
    g_assert(call.answer.failure == NULL);
    digest = add_bytes(digest, call.answer.bytes, call.answer.n_bytes);
    handler_answer_clear(&call.answer);
    return digest;
}

static uint64_t add_rows(uint64_t digest, RubatoShard *shard, const RubatoKey *keys, size_t n)
{
    const RubatoTableSpec *spec = shard_spec(shard);
    const size_t row_bytes = shard_row_bytes(shard), state_bytes = spec_state_bytes(spec);
    const RubatoKeys all = { .keys = keys, .n = n };
    g_autofree char *rows = g_malloc0(n * row_bytes + 1);
    g_autofree char *states = g_malloc0(n * state_bytes + 1);

    if (spec->shape == RUBATO_SHAPE_RAGGED)
        return add_ragged_rows(add_bytes(digest, keys, n * sizeof *keys), shard, &all);
    shard_get(shard, &all, rows);
    if (state_bytes > 0)
        shard_get_state(shard, &all, states);
    digest = add_bytes(digest, keys, n * sizeof *keys);
    digest = add_bytes(digest, rows, n * row_bytes);
    return add_bytes(digest, states, n * state_bytes);
}

uint64_t shard_digest(RubatoShard *shard)
{
    const bool is_range = rubato_table_spec_holds_range(shard_spec(shard));
    const BadGradients *bad = shard_bad_gradients(shard);
    uint64_t digest = UINT64_C(0xcbf29ce484222325), first = 0, n = shard_n_rows(shard);
    g_autofree RubatoKey *keys = NULL;

    if (is_range)
        shard_range(shard, &first, &n);
    keys = g_new0(RubatoKey, n + 1);
    for (uint64_t i = 0; i < n && is_range; i++)
        keys[i] = first + i;
    if (!is_range) {
        shard_list(shard, 0, n, keys);
        qsort(keys, n, sizeof *keys, compare_keys);
    }
    digest = add_rows(digest, shard, keys, n);
    for (uint32_t hyper = 0; hyper <= RUBATO_HYPER_MAX_GRADIENT; hyper++) {
        double value = 0;
        const bool is_tuned = shard_tuned(shard, (RubatoHyper)hyper, &value);

        digest = add_bytes(digest, &is_tuned, sizeof is_tuned);
        digest = add_bytes(digest, &value, sizeof value);
    }
    for (uint32_t i = 0; i < bad_gradients_length(bad); i++) {
        BadCounts counts;

        bad_gradients_read(bad, i, 1, &counts);
        digest = add_bytes(digest, &counts, sizeof counts);
    }
    return digest;
}

bool part_inputs(const Server *server, uint32_t table, uint32_t part, PartDigest *found)
{
    const ServerTable *here = server_find_table(server, table);

    if (here == NULL || part >= here->n_parts ||
        (here->parts[part].shard == NULL &&
         (here->parts[part].replica == NULL || here->parts[part].replica->stage != REPLICA_WHOLE)))
        return false;
    *found = (PartDigest){ .is_primary = here->parts[part].shard != NULL };
    if (!found->is_primary) {
        found->n_inputs = here->parts[part].replica->position;
        found->n_models = here->parts[part].replica->models->len;
    } else if (here->parts[part].fed != NULL) {
        found->n_inputs = here->parts[part].fed->feed.n_inputs;
        found->is_settled = here->parts[part].fed->is_settled;
    }
    return true;
}

/* What the part has had of the engines of nodes; NULL: it has no replicas. */
static const InputSequences *find_had(const Server *server, uint32_t table, uint32_t part)
{
    const ServerTable *here = server_find_table(server, table);
    const FedPart *fed = here->parts[part].fed;

    if (here->parts[part].replica != NULL)
        return here->parts[part].replica->had;
    return fed == NULL ? NULL : fed->had;
}

bool part_digest(const Server *server, uint32_t table, uint32_t part, PartDigest *found)
{
    const InputSequences *had;
    uint64_t position;

    if (!part_inputs(server, table, part, found))
        return false;
    found->digest =
        shard_digest(found->is_primary ? server_find_shard(server, table, part)
                                       : server_find_replica(server, table, part, &position));
    had = find_had(server, table, part);
    if (had != NULL)
        found->digest =
            add_bytes(found->digest, had->senders, had->n_senders * sizeof had->senders[0]);
    return true;
}
