/* Which job system has started this process: see job_place.h. */
#include "engine/cluster/jobs/job_place.h"

/* mpirun within an allocation of Slurm starts its daemons as a step, and the processes have the
 * variables of that step, too. So Slurm comes last. */
static const JobSystem *const SYSTEMS[] = {
    &job_system_open_mpi,
    &job_system_hydra,
    &job_system_slurm,
};

bool job_place_find(JobPlace *place, GError **error)
{
    *place = (JobPlace){ .system = NULL };
    for (size_t i = 0; i < G_N_ELEMENTS(SYSTEMS) && place->system == NULL; i++)
        if (!SYSTEMS[i]->find(place, error))
            return false;
    return true;
}

char *job_place_systems(void)
{
    GString *const names = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(SYSTEMS); i++)
        g_string_append_printf(names, "%s%s", i > 0 ? ", " : "", SYSTEMS[i]->name);
    return g_string_free(names, FALSE);
}
