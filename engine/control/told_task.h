/* A task as a line of text, for a process that serves and has not made the call that began it: it
 * needs what its servers have to know of the task.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CONTROL_TOLD_TASK_H
#define RUBATO_ENGINE_CONTROL_TOLD_TASK_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t epoch;
    uint32_t n_workers;   /* of all nodes, at least 1 */
    uint32_t *workers_of; /* by node number; 0 of nodes that had been lost when it began */
    uint32_t n_tables;
    uint32_t *tables; /* their numbers */
    bool replaces;    /* another process gets the workers of a lost node */
} ToldTask;

/* Adds a line. tables: their numbers, with a blank between each two. Of the task, the tables are
 * not read. */
void told_task_write(GString *text, const ToldTask *task, uint32_t n_nodes, const char *tables);

/* Reads the next line, and advances *text behind it. On failure *text and *task stay.
 * told_task_clear frees the task's members. */
bool told_task_read(const char **text, uint32_t n_nodes, ToldTask *task);
void told_task_clear(ToldTask *task);

#endif
