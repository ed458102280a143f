/* The place of this process among those that a job system has started together, such as a step of
 * Slurm. A run of equal nodes takes from it what the variables of Rubato do not say.
 *
 * Each job system is a file of this folder, and a line of the array in job_place.c.
 *
 * Threads: that of the engine's calls, before others use the environment. */
#ifndef RUBATO_ENGINE_CLUSTER_JOBS_JOB_PLACE_H
#define RUBATO_ENGINE_CLUSTER_JOBS_JOB_PLACE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *system; /* its name, for people: "Slurm"; NULL: no job system has started this */
    uint32_t rank;      /* below size */
    uint32_t size;      /* how many processes there are */
    uint32_t workers;   /* for how many workers this process has processors; 0: not said */
    uint16_t port;      /* where rank 0 may listen; the same on all */
    const char *host;   /* where rank 0 runs: a name or an address. Interned */
} JobPlace;

typedef struct {
    const char *name;

    /* Fills in *place if this system has started the process; else place->system stays NULL.
     * False with RUBATO_ERROR_INVALID if it has, but its variables do not say enough, or with
     * RUBATO_ERROR_NETWORK if it does not answer what they leave open. */
    bool (*find)(JobPlace *place, GError **error);
} JobSystem;

/* Asks each job system. */
bool job_place_find(JobPlace *place, GError **error);

/* The names of all systems: "Slurm, ...". (transfer full) */
char *job_place_systems(void);

extern const JobSystem job_system_hydra;
extern const JobSystem job_system_open_mpi;
extern const JobSystem job_system_slurm;

#endif
