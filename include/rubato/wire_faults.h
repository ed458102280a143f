/* Faults on the wire, on demand: an engine whose packets to other nodes are lost, doubled, held
 * back, or cut off for a while, on whatever transport they go.
 *
 * Nodes notice such faults and send again, so a run takes longer and its result is the same. The
 * faults follow from the seed and from how many packets the engine has sent to each node. Cuts by
 * cut_every_ms also depend on the time of day. Which thread runs when does not follow from the
 * seed.
 *
 * The environment variable RUBATO_FAULTS asks for the same faults in any program: rubato_engine_new
 * reads it.
 *
 * Threads: any. */
#ifndef RUBATO_WIRE_FAULTS_H
#define RUBATO_WIRE_FAULTS_H

#include <rubato/engine.h>

G_BEGIN_DECLS

/* loss, doubling, reordering and cut are chances, from 0 to 1, for each packet. */
typedef struct {
    uint64_t seed;
    double loss;           /* the packet is dropped */
    double doubling;       /* the packet is sent twice */
    double reordering;     /* the packet is sent after some that follow it, or after some ms */
    double cut;            /* from this packet on, all to its node are dropped for cut_ms */
    uint32_t cut_ms;       /* less than the cluster's timeout: else a node is lost. 0: 100 */
    uint32_t cut_every_ms; /* each pair of nodes is cut for cut_ms once in this time; 0: never */
    uint32_t delay_ms;     /* each packet is sent this much later */
} RubatoWireFaults;

/* As rubato_engine_new, with these faults instead of those of RUBATO_FAULTS. The faults are copied.
 * RUBATO_ERROR_INVALID if a chance is not between 0 and 1. (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new_with_faults(const RubatoEngineConfig *config,
                                                       const RubatoWireFaults *faults,
                                                       GError **error);

G_END_DECLS

#endif
