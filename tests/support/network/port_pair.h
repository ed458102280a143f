/* Two free ports of 127.0.0.1, one after the other. Another process may take them until they are
 * used, as any free port.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_NETWORK_PORT_PAIR_H
#define TESTS_SUPPORT_NETWORK_PORT_PAIR_H

/* The first one. */
unsigned find_port_pair(void);

#endif
