/* A part, as a handler sees it.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_HANDLERS_PART_H
#define RUBATO_MODELS_HANDLERS_PART_H

#include <rubato/handler_ops.h>

#include "io/net/handler_call.h"
#include "models/handlers/call_trace.h"
#include "models/shard/shard_private.h"

struct RubatoPart {
    const HandlerCall *call;
    RubatoShard *shard;
    const RubatoKeys *keys; /* of the call; not used if it is of all rows */
    uint64_t n_done;        /* rows that rubato_part_next has given */
    bool is_starved;        /* there was no memory for rows */
    void *fresh;            /* initial values of absent rows; NULL until there are any */
    CallTrace *trace;       /* of a history; NULL: there is none */
    RubatoKey block[BLOCK];
    void *rows[BLOCK];
};

/* All of these outlive the part. */
void part_begin(RubatoPart *part, const HandlerCall *call, RubatoShard *shard,
                const RubatoKeys *keys);
void part_end(RubatoPart *part, bool has_failed);

#endif
