/* A port for a step of a job: see job_port.h. */
#include "engine/cluster/jobs/job_port.h"

enum {
    FIRST_PORT = 10000,
    N_PORTS = 20000,
};

/* FNV-1a, 32 bits. */
uint16_t job_port_of(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * 16777619u;
    return (uint16_t)(FIRST_PORT + hash % N_PORTS);
}
