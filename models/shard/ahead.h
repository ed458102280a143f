/* Which rows of a shard change while they are sent ahead of a move, so that these alone are sent
 * again when the part moves (engine/server/moving/moving_ahead.c).
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_SHARD_AHEAD_H
#define RUBATO_MODELS_SHARD_AHEAD_H

#include <glib.h>

#include "models/shard/shard.h"

/* Whether rows may be sent ahead: they can be listed piece by piece, and none leaves the shard that
 * would stay for requests to the other server. Rows that expire may be sent ahead, too: sweeps are
 * held meanwhile. */
bool shard_goes_ahead(const RubatoShard *shard);

/* From now on the shard notes which rows change, or are made. Until the end no sweep removes rows
 * that have expired, and shard_leave_out_absent keeps them. */
void shard_begin_ahead(RubatoShard *shard);

/* Whether it does, and has had memory for all of them so far. */
bool shard_is_ahead(const RubatoShard *shard);

/* The keys of these rows, each one once, of RubatoKey; the notes begin anew. A key need not have a
 * row. (transfer full) */
GArray *shard_take_ahead(RubatoShard *shard);

/* It notes nothing any more. */
void shard_end_ahead(RubatoShard *shard);

#endif
