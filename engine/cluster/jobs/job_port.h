/* The port at which the processes of a job meet, if nobody gives them one.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_JOBS_JOB_PORT_H
#define RUBATO_ENGINE_CLUSTER_JOBS_JOB_PORT_H

#include <stdint.h>

/* A port that is the same for the same text: from 10000 to 29999, where systems do not give ports
 * to those who ask for any. */
uint16_t job_port_of(const char *text);

#endif
