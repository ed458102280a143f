/* Which rows of a shard change while they are sent ahead of a move, so that these alone are sent
 * again when the part moves (engine/server/moving/moving_ahead.c).
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_SHARD_AHEAD_H
#define RUBATO_MODELS_SHARD_AHEAD_H

#include <glib.h>

#include "models/shard/shard.h"

/* From now on the shard notes which rows change, are made, or leave. Until the end no sweep removes
 * rows that have expired, and shard_leave_out_absent keeps them. The shard's rows can be listed
 * piece by piece (shard_has_pieces). */
void shard_begin_ahead(RubatoShard *shard);

/* Whether it does, and has had memory for all of them so far. */
bool shard_is_ahead(const RubatoShard *shard);

/* The keys of these rows, each one once, of RubatoKey; the notes begin anew. A key need not have a
 * row. (transfer full) */
GArray *shard_take_ahead(RubatoShard *shard);

/* It notes nothing any more. */
void shard_end_ahead(RubatoShard *shard);

#endif
