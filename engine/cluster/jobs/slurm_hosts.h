/* Lists of hosts as Slurm writes them: "node[003-005,9],login1".
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_JOBS_SLURM_HOSTS_H
#define RUBATO_ENGINE_CLUSTER_JOBS_SLURM_HOSTS_H

/* The first host of a list: "node003". NULL if this is no such list. (transfer full) */
char *slurm_first_host(const char *list);

#endif
