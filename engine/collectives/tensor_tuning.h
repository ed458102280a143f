/* Cut-overs of allreduce (tensor_cutovers.h) that are measured while a task runs, and kept in a
 * file; or read from it, and then nothing is measured.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_TUNING_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_TUNING_H

#include <glib.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"

#define CUTOVERS_VARIABLE "RUBATO_CUTOVERS" /* names the file, if the task does not */
#define WAY_VARIABLE "RUBATO_ALLREDUCE"     /* a way for all sizes, or TENSOR_ANY_WAY */

/* Those that add in an order of their own are measured, too. */
#define TENSOR_ANY_WAY "any"

typedef struct TensorTuning TensorTuning;

/* path: NULL if way is the name of one, which then is for all sizes; nothing is measured. way:
 * NULL: those that keep the order are measured. n_nodes: with workers of the task. cutovers: those
 * that hold until others are found. RUBATO_ERROR_IO, _FORMAT, _CONFIG: the file cannot be read,
 * makes no sense, or is of another number of nodes; there is no such way. (transfer full) */
TensorTuning *tensor_tuning_new(const char *path, const char *way, const char *task,
                                uint32_t n_nodes, TensorCutovers cutovers, GError **error);

/* Writes the file, if something was measured; a file that cannot be written is warned of. NULL is
 * allowed. */
void tensor_tuning_free(TensorTuning *tuning);

/* The cut-overs that are to hold now. */
TensorCutovers tensor_tuning_cutovers(const TensorTuning *tuning);

/* Whether it needs to know how long operations take. */
bool tensor_tuning_measures(const TensorTuning *tuning);

/* An operation of that class has taken so long. True: other cut-overs are to hold from now on. When
 * a class is settled it says so in the log. */
bool tensor_tuning_note(TensorTuning *tuning, uint32_t size_class, TensorWay way, uint64_t ns);

#endif
