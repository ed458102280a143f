/* Faults on the wire, for tests: an engine whose packets to other nodes are lost, doubled, held
 * back, or cut off for a while.
 *
 * Nodes notice such faults and send again, so a run takes longer and its result is the same. The
 * faults follow from the seed and from how often the engine has sent to whom; which threads run
 * when does not.
 *
 * Threads: any. */
#ifndef RUBATO_WIRE_FAULTS_H
#define RUBATO_WIRE_FAULTS_H

#include <rubato/engine.h>

G_BEGIN_DECLS

/* Chances are of a packet, from 0 to 1. */
typedef struct {
    uint64_t seed;
    double loss;     /* it is dropped */
    double doubling; /* it is sent twice */
    double delay;    /* it is sent after some that follow it */
    double cut;      /* with it, all packets to its node are dropped for cut_ms */
    uint32_t cut_ms; /* less than the cluster's timeout: else a node is lost. 0: 100 */
} RubatoWireFaults;

/* As rubato_engine_new, for a node of a cluster that talks TCP, with these faults. The faults are
 * copied. RUBATO_ERROR_INVALID if a chance is none. (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new_with_faults(const RubatoEngineConfig *config,
                                                       const RubatoWireFaults *faults,
                                                       GError **error);

G_END_DECLS

#endif
