/* Faults that the environment asks for, in any program: RUBATO_FAULTS.
 *
 * Threads: the engine's owner. */
#ifndef RUBATO_ENGINE_FAULTS_ON_DEMAND_H
#define RUBATO_ENGINE_FAULTS_ON_DEMAND_H

#include <time.h>

#include <rubato/wire_faults.h>

#define FAULTS_VARIABLE "RUBATO_FAULTS"

typedef struct {
    RubatoWireFaults of_packets;
    bool has_wire; /* of_packets has some */
    bool kills;
    uint32_t kill_node; /* id */
    uint32_t kill_ms;   /* from the start of its engine */

    char *text; /* as it was given; NULL: there are none */
    timer_t killer;
    bool has_killer;
} FaultsOnDemand;

/* Reads a text such as "drop=0.1,delay=20ms,kill=3@12s,seed=7". RUBATO_ERROR_INVALID names what is
 * wrong in it. The empty text has no faults. */
bool faults_on_demand_parse(FaultsOnDemand *faults, const char *text, GError **error);

/* Has this process killed when its time comes, if it is the node of that id. */
bool faults_on_demand_arm(FaultsOnDemand *faults, uint32_t id, GError **error);

void faults_on_demand_clear(FaultsOnDemand *faults);

#endif
