/* A run that works until its case lets it end, and checks every row that it reads.
 *
 * Threads: the case's only one; endless_run_play: a node's. */
#ifndef TESTS_SUPPORT_CLUSTER_ENDLESS_RUN_H
#define TESTS_SUPPORT_CLUSTER_ENDLESS_RUN_H

#include "tests/support/cluster/cluster_run.h"

/* Before the first node starts. */
void endless_run_open(void);

/* What its nodes play. Says where the node receives, as "endpoint=", and "busy" when its workers
 * have made some clocks. */
bool endless_run_play(RubatoEngine *engine, const void *data, GError **error);

/* The workers stop soon. */
void endless_run_end(void);

#endif
