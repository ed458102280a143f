/* Which way an allreduce goes between nodes, by its size, and how that is measured.
 *
 * Sizes are taken by classes, each up to twice the bytes of the one before; the last one has all
 * that are larger. Cut-overs are a way for each class, four bits each.
 *
 * The tuner is a state machine without a clock. It tries some ways of a class in turn, several
 * operations each, and stays with the one whose median is lowest; with the way that the class began
 * with, unless another one is clearly faster.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_CUTOVERS_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_CUTOVERS_H

#include <stdbool.h>
#include <stdint.h>

/* Ways of an allreduce. The first three add up nodes' values in the order of the nodes, so their
 * results have the same bits; the others add in an order of their own. */
typedef enum {
    TENSOR_WAY_SHARES,   /* each node combines a share of it, and sends the result to all others */
    TENSOR_WAY_DIRECT,   /* each node sends its values to all others, and each combines them */
    TENSOR_WAY_DOUBLING, /* the same, but what has come is passed on with it (Bruck) */
    TENSOR_WAY_HALVING,  /* reduce-scatter by recursive halving, allgather by doubling */
    TENSOR_WAY_RING,     /* the same from each node to the next one */
} TensorWay;

#define TENSOR_WAYS ((uint32_t)TENSOR_WAY_RING + 1)

/* Whether nodes pass on what they get (engine/collectives/flow/tensor_schedule.h). */
static inline bool tensor_way_relays(TensorWay way)
{
    return way >= TENSOR_WAY_DOUBLING;
}

/* As users know it. */
const char *tensor_way_name(TensorWay way);

/* False: there is none of that name. */
bool tensor_way_find(const char *name, TensorWay *way);

/* Sets of ways: a bit for each. Those that keep the order; those among which a tuner can choose,
 * which differ for so many nodes and need not much memory. */
#define TENSOR_WAYS_IN_ORDER \
    (1u << TENSOR_WAY_SHARES | 1u << TENSOR_WAY_DIRECT | 1u << TENSOR_WAY_DOUBLING)
uint32_t tensor_ways_of(uint32_t n_nodes);

/* Up to 4 KiB, 8 KiB, … 8 MiB, which are measured; and larger. */
enum { TENSOR_MEASURED_CLASSES = 12, TENSOR_CLASSES };

uint32_t tensor_class_of(uint64_t n_bytes);

/* The most bytes of a class that is measured. */
uint64_t tensor_class_bytes(uint32_t size_class);

typedef uint64_t TensorCutovers;

TensorWay tensor_cutovers_way(TensorCutovers cutovers, uint32_t size_class);
void tensor_cutovers_set(TensorCutovers *cutovers, uint32_t size_class, TensorWay way);

/* Those that hold if nothing else is said: directly up to so many bytes, larger ones by shares. */
TensorCutovers tensor_cutovers_up_to(uint64_t n_bytes);

/* The same way for all sizes. */
TensorCutovers tensor_cutovers_all(TensorWay way);

/* Whether they name a way for each class, and nothing else. */
bool tensor_cutovers_are_valid(TensorCutovers cutovers);

enum { TENSOR_WAY_TURNS = 3, TENSOR_TURN_SAMPLES = 5, TENSOR_TURN_SKIPPED = 2 };
enum { TENSOR_WAY_SAMPLES = TENSOR_WAY_TURNS * TENSOR_TURN_SAMPLES };

/* Of one class. */
typedef struct {
    bool is_settled;
    TensorWay first; /* that it began with */
    uint32_t turn, n_skipped, n_in_turn;
    uint64_t samples[TENSOR_WAYS][TENSOR_WAY_SAMPLES]; /* ns */
    uint32_t n_samples[TENSOR_WAYS];
    uint64_t medians[TENSOR_WAYS]; /* once it is settled by measuring; else 0 */
} TensorTrial;

typedef struct {
    TensorCutovers cutovers; /* that are to hold now */
    uint32_t ways;           /* that are tried: a set */
    TensorTrial trials[TENSOR_CLASSES];
} TensorTuner;

void tensor_tuner_init(TensorTuner *tuner, TensorCutovers cutovers, uint32_t ways);

/* The class stays as it is, and is not measured. */
void tensor_tuner_pin(TensorTuner *tuner, uint32_t size_class, TensorWay way);

typedef enum {
    TENSOR_TUNER_NOTHING,
    TENSOR_TUNER_TRIES,   /* other cut-overs are to hold from now on */
    TENSOR_TUNER_SETTLES, /* the class is settled; perhaps other cut-overs are to hold, too */
} TensorTunerNews;

/* An operation of that class has taken so long. */
TensorTunerNews tensor_tuner_note(TensorTuner *tuner, uint32_t size_class, TensorWay way,
                                  uint64_t ns);

#endif
