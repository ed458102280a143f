/* What this machine, and the limits of this process, give to a node.
 *
 * Threads: any; reads files of /proc and /sys. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_MACHINE_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_MACHINE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* What the node needs. */
typedef struct {
    uint32_t
        n_threads;    /* which compute at the same time: workers, or server threads; 0: not known */
    uint32_t n_nodes; /* of the run; 0: not known */
    bool needs_shm;   /* it has no other transport */
    bool uses_ucx;
} MachineNeeds;

/* Adds findings: cores, memory, shared memory, open files, locked memory, /dev/shm. `root` stands
 * before the paths that are read: "", or a test's folder. */
void machine_check(GPtrArray *findings, const char *root, const MachineNeeds *needs);

#endif
