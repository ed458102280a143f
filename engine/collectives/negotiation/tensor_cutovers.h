/* From which size on an allreduce between nodes goes another way, and how that is measured.
 *
 * A tensor goes directly (each node sends its part to all others, and each combines all of them) or
 * by reduce-scatter and allgather (each node combines a share and sends the result). Both combine
 * values in the same order, so results have the same bits. Sizes are taken by classes, each up to
 * twice the bytes of the one before; cut-overs are a bit for each class, which is set if it goes
 * directly.
 *
 * The tuner is a state machine without a clock. It tries both ways of a class in turn, several
 * operations each, and stays with the one whose median is lower; with the way that the class began
 * with, unless the other one is clearly faster.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_CUTOVERS_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_CUTOVERS_H

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_CLASSES 12u /* up to 4 KiB, 8 KiB, … 8 MiB; larger tensors have no choice */
#define TENSOR_ALL_CLASSES ((UINT32_C(1) << TENSOR_CLASSES) - 1)

/* TENSOR_CLASSES: it has no choice. */
uint32_t tensor_class_of(uint64_t n_bytes);

/* The most bytes of a class. */
uint64_t tensor_class_bytes(uint32_t size_class);

/* The cut-overs that hold if nothing else is said: directly up to so many bytes. */
uint32_t tensor_cutovers_up_to(uint64_t n_bytes);

enum { TENSOR_TURNS = 6, TENSOR_TURN_SAMPLES = 5, TENSOR_TURN_SKIPPED = 2 };
enum { TENSOR_WAYS = 2, TENSOR_WAY_SAMPLES = TENSOR_TURNS / 2 * TENSOR_TURN_SAMPLES };

/* Of one class. */
typedef struct {
    bool is_settled;
    bool began_directly;
    uint32_t turn, n_skipped, n_in_turn;
    uint64_t samples[TENSOR_WAYS][TENSOR_WAY_SAMPLES]; /* ns; of the other way, and directly */
    uint32_t n_samples[TENSOR_WAYS];
    uint64_t medians[TENSOR_WAYS]; /* once it is settled by measuring; else 0 */
} TensorTrial;

typedef struct {
    uint32_t direct; /* the cut-overs that are to hold now */
    TensorTrial trials[TENSOR_CLASSES];
} TensorTuner;

void tensor_tuner_init(TensorTuner *tuner, uint32_t direct);

/* The class stays as it is, and is not measured. */
void tensor_tuner_pin(TensorTuner *tuner, uint32_t size_class, bool directly);

typedef enum {
    TENSOR_TUNER_NOTHING,
    TENSOR_TUNER_TRIES,   /* other cut-overs are to hold from now on */
    TENSOR_TUNER_SETTLES, /* the class is settled; perhaps other cut-overs are to hold, too */
} TensorTunerNews;

/* An operation of that class has taken so long. */
TensorTunerNews tensor_tuner_note(TensorTuner *tuner, uint32_t size_class, bool directly,
                                  uint64_t ns);

#endif
