/* Parts that go to a node which has joined: see engine_balance.c. */
#ifndef RUBATO_ENGINE_PARTS_ENGINE_BALANCE_H
#define RUBATO_ENGINE_PARTS_ENGINE_BALANCE_H

#include <rubato/engine.h>

#include "engine/control/place_text.h"
#include "engine/placement/placement.h"

/* sets: of PlaceSet, where the parts of all tables are; a part that is to move gets its new server
 * as the last one. moved: of PlaceMove, which it adds to. servers: by number, what they have; what
 * the moves need is added. The engine's lock is held. */
void engine_balance(RubatoEngine *engine, uint32_t node, PlacementServer *servers, GArray *sets,
                    GArray *moved);

#endif
