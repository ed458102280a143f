/* What a node does with each message that the scheduler sends it.
 *
 * Threads: the owner of the engine's control actor. None blocks. `from` is the number of the node
 * that sent the message; an answer to a greeting has this node's own. */
#ifndef RUBATO_ENGINE_CONTROL_NODE_MESSAGES_H
#define RUBATO_ENGINE_CONTROL_NODE_MESSAGES_H

#include <rubato/engine.h>

#include "engine/control/control.h"

void node_hears_welcome(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_refuse(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_place(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_admitted(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_beat(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_go(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_commit(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_past(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_caught_up(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_cancel(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_task_end(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_release(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_blocks(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_decide(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_lost(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_waiting(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_drained(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_made(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_recover(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_snapshot_step(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_snapshot_end(RubatoEngine *engine, uint32_t from, const Control *control);
void node_hears_left(RubatoEngine *engine, uint32_t from, const Control *control);

#endif
