/* What a stranger without a secret does at the port of a node over TCP.
 *
 * Threads: the case's only one. A wrong step fails the case. */
#ifndef TESTS_SUPPORT_CLUSTER_STRANGER_H
#define TESTS_SUPPORT_CLUSTER_STRANGER_H

#include <sys/types.h>

#include "engine/control/control.h"
#include "tests/support/network/tcp_hand.h"

/* A connection to a port of this machine. */
int stranger_connect(uint16_t port);

/* A connection of a node: without a secret, any process that knows the protocol can make one. */
TcpHand stranger_connect_as_node(uint16_t port);

void stranger_push(TcpHand *hand, const void *bytes, size_t size);

/* (transfer none) */
void stranger_push_greeting(TcpHand *hand, GVariant *body);

/* Greeting i of a flood: each is of a node that nobody waits for, at another place where nobody is.
 * No answer is read. */
void stranger_greet(TcpHand *hand, uint32_t i);

/* Waits until a greeting on another connection is refused: all that came before has been taken
 * in. */
void stranger_be_refused(uint16_t port);

/* What a process has in memory, in kilobytes. */
long stranger_resident_kb(pid_t pid);

#endif
