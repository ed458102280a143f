/* Steps of a task's workers on this node: no snapshot cuts a worker in the middle of one.
 *
 * A worker enters the gate when its step begins, and leaves it when the step ends. A snapshot
 * closes the gate, which waits until no worker is inside, and opens it when all tables are cut.
 *
 * Threads: any. A worker that is inside leaves before it enters again. Whoever closes the gate
 * opens it; one does at a time. */
#ifndef RUBATO_ENGINE_TASK_STEP_GATE_H
#define RUBATO_ENGINE_TASK_STEP_GATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct StepGate StepGate;

/* task: its name, for errors. (transfer full) */
StepGate *step_gate_new(const char *task);
StepGate *step_gate_ref(StepGate *gate);
void step_gate_unref(StepGate *gate);

const char *step_gate_task(const StepGate *gate);

/* The worker goes in. Waits while the gate is closed, up to timeout_ms. False: it still is. */
bool step_gate_enter(StepGate *gate, uint32_t rank, int timeout_ms);
void step_gate_leave(StepGate *gate, uint32_t rank);

/* From now on no worker goes in. */
void step_gate_close(StepGate *gate);

/* Waits until no worker is inside, up to end_ms of monotonic_ms(). False: this worker still is. */
bool step_gate_wait(StepGate *gate, int64_t end_ms, uint32_t *rank);

void step_gate_open(StepGate *gate);

#endif
