/* Links of an exchange (tensor_exchange.h) that do nothing: for tests of one node, which bring what
 * other nodes and the coordinator send. A message is memory of g_malloc. `user` is not looked at.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_COLLECTIVES_IDLE_LINKS_H
#define TESTS_SUPPORT_COLLECTIVES_IDLE_LINKS_H

#include "engine/collectives/tensor_exchange.h"

/* ---- of a TensorCarrier ---- */

void *idle_new_message(void *user, uint32_t node, const TensorMessage *message, void **bytes);

/* Frees what is sent, or not sent. */
void idle_forget(void *user, uint32_t node, void *message);

/* What came stays where it is, until it is dropped. */
void *idle_keep(void *user, void *message, const void **bytes);
void idle_drop(void *user, void *message);

/* ---- of the TensorLinks ---- */

void idle_tell(void *user, const char *notices);

/* There is always room. */
bool idle_is_full(void *user, uint32_t node);
bool idle_wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                    int timeout_ms);

/* always_receives, outlives_losses. */
bool idle_yes(void *user);

#endif
