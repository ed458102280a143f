/* The errors that Rubato reports: one GError domain.
 *
 * Threads: any. */
#ifndef RUBATO_ERROR_H
#define RUBATO_ERROR_H

#include <rubato/types.h>

G_BEGIN_DECLS

#define RUBATO_ERROR (rubato_error_quark())

typedef enum {
    RUBATO_ERROR_INVALID,   /* an argument, flag or table spec that makes no sense */
    RUBATO_ERROR_CONFIG,    /* a cluster file that is wrong; the message has file and line */
    RUBATO_ERROR_FORMAT,    /* a data file that is wrong; the message has file, line and column */
    RUBATO_ERROR_IO,        /* a file that cannot be read or written */
    RUBATO_ERROR_NETWORK,   /* a busy port, an unknown host, an impossible answer */
    RUBATO_ERROR_NOT_FOUND, /* no table, model, storage, rule or handler of that name; a worker that
                            * has returned */
    RUBATO_ERROR_EXISTS,   /* a table of that name is there already, or such a collective pending */
    RUBATO_ERROR_TYPE,     /* a handle opened with another dtype than the table's */
    RUBATO_ERROR_RANGE,    /* a key outside the table's range */
    RUBATO_ERROR_MEMORY,   /* a table or message larger than the memory there is */
    RUBATO_ERROR_MISMATCH, /* nodes that disagree on the file, the version or the next collective
                            * call, workers on a tensor; rows that a model was not made for */
    RUBATO_ERROR_TASK_FAILED, /* a worker's function returned false */
    RUBATO_ERROR_CANCELLED,   /* another worker's failure, or a signal, ended the task */
    RUBATO_ERROR_NODE_LOST,   /* a node died or hangs */
    RUBATO_ERROR_DEADLOCK,    /* workers of a task wait for one another, and would wait for ever */
    RUBATO_ERROR_HANDLER,     /* a handler failed on a server; the message is its own */
    RUBATO_ERROR_SERVICE,     /* a service failed on its node; the message is its own */
    RUBATO_ERROR_TIMEOUT,     /* a request, or a barrier of a group, took longer than its caller has
                               * allowed */
    RUBATO_ERROR_SERVED,      /* this process has served in the place of a lost one until the run
                               * ended, or was drained and has left the run before it ends; it has
                               * nothing else to do: no failure */
} RubatoError;

RUBATO_API GQuark rubato_error_quark(void);

G_END_DECLS

#endif
