/* What job systems share when they read the environment of a process.
 *
 * Threads: as job_place.h says. */
#ifndef RUBATO_ENGINE_CLUSTER_JOBS_JOB_ENVIRONMENT_H
#define RUBATO_ENGINE_CLUSTER_JOBS_JOB_ENVIRONMENT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* How errors name the system. */
typedef struct {
    const char *started; /* "this is a step of Slurm" */
    const char *command; /* "srun" */
} JobStarter;

/* A variable that has to be a number. False with RUBATO_ERROR_INVALID if it is none from lowest to
 * highest. */
bool job_read_number(const JobStarter *starter, const char *name, uint64_t lowest, uint64_t highest,
                     uint32_t *number, GError **error);

/* Some systems tell where rank 0 runs only once. So the answer stays in the variable
 * RUBATO_JOB_ANSWER, for a later engine of this process and for the program that `rubato task`
 * becomes. It names its job: who starts a job from inside of another hands its own environment on.
 * `job` is without spaces. */
void job_remember(const char *job, const char *answer);

/* NULL: nothing is known of this job. Interned. */
const char *job_recall(const char *job);

/* Whether the program itself uses MPI, and whether MPI_Init has been called. It speaks to the job
 * system by the same connection. */
bool job_uses_mpi(bool *has_begun);

#endif
