/* What the workers of test_conformance.c do: which keys each of them uses when, and so how many
 * Adds of each a Get may see.
 *
 * Threads: any, once it is made. */
#ifndef TESTS_SUPPORT_ENGINE_CONFORMANCE_PLAN_H
#define TESTS_SUPPORT_ENGINE_CONFORMANCE_PLAN_H

#include <rubato/rubato.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/support/engine/mover.h"

enum {
    N_WORKERS = 3,
    N_ITERATIONS = 6,
    N_KEYS = 37, /* no multiple of the chunk size */
    CHUNK_SIZE = 5,
    N_CHUNKS = (N_KEYS + CHUNK_SIZE - 1) / CHUNK_SIZE,
    FIRST_KEY = 1000,
    FIRST_OF_RUN = 2, /* keys with these numbers lie side by side in hash storage too */
    END_OF_RUN = 20,
    MAX_STEP_KEYS = 40,
    MAX_WIDTH = 32,
    DIGIT = 64,
};

typedef enum {
    HANDLE_KV,
    HANDLE_KV_CACHED,     /* opened for the process cache */
    HANDLE_KV_ALL_CACHED, /* the process cache serves all rows */
    HANDLE_CHUNK,
    HANDLE_SPARSE,
    HANDLE_RAGGED, /* row i has 1 + i % width values */
} HandleKind;

typedef struct {
    uint32_t n;
    uint32_t numbers[MAX_STEP_KEYS]; /* 0 .. N_KEYS - 1 */
    RubatoKey keys[MAX_STEP_KEYS];
    bool is_run;
    bool is_chunks;
    uint32_t n_chunks;
    uint64_t chunks[N_CHUNKS];
} Step;

typedef struct {
    RubatoTableSpec spec;
    bool moves;
    Mover *mover; /* NULL: they do not */
    HandleKind handle;
    bool is_bsp, is_asp;
    uint64_t staleness; /* how far ahead of another's clocks a Get may be */
    uint64_t reach;     /* and how far ahead it may itself be seen */
    Step steps[N_WORKERS][N_ITERATIONS];
    uint32_t times[N_WORKERS][N_ITERATIONS][N_KEYS]; /* a key is in a step */
} Plan;

/* The key of a number from 0 to N_KEYS - 1. */
RubatoKey plan_key(const Plan *plan, uint32_t number);

/* Chooses all steps; the spec and the handle are set. */
void plan_make(Plan *plan, uint64_t seed);

/* How often a worker adds to a key in the iterations before `end`. */
uint64_t plan_added_before(const Plan *plan, uint32_t worker, uint64_t end, uint32_t number);

/* ---- rows of different lengths: the same values, without those beyond a row's end ---- */

uint32_t plan_row_length(const Plan *plan, uint32_t number);

/* Copies the values that rows have between rows of one length and packed ones. Unpacked, there is
 * beyond the end of a row what would be there. */
void plan_pack(const Plan *plan, const Step *step, char *packed, const char *even);
void plan_unpack(const Plan *plan, const Step *step, const char *packed, char *even);

#endif
