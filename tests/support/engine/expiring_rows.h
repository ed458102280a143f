/* Rows that expire, for the tests of storages. All values of a row are one number.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_ENGINE_EXPIRING_ROWS_H
#define TESTS_SUPPORT_ENGINE_EXPIRING_ROWS_H

#include "models/shard/shard.h"

enum { N_EXPIRING_SHAPES = 7 };

/* Rows in cells and in slabs; of 8 bytes, whose stamps have padding; with state; with a bound that
 * leaves room for all. */
extern const RubatoTableSpec expiring_shapes[N_EXPIRING_SHAPES];

/* The spec of a table whose rows expire after so many clocks. If they have no update rule, a new
 * row has 100. */
RubatoTableSpec expiring_by_clocks(RubatoTableSpec spec, uint32_t after);

/* Writes the number into all values of a row, and reads it: the values have to be the same. */
void fill_row(const RubatoTableSpec *spec, void *row, int number);
double read_row(const RubatoTableSpec *spec, const void *row);

/* The same in a shard, for one key. */
double get_number(RubatoShard *shard, RubatoKey key);
void add_number(RubatoShard *shard, RubatoKey key, int delta);
void set_number(RubatoShard *shard, RubatoKey key, int number);

/* A piece of a sweep: whether there is more of it. A whole sweep, or what is left of one. */
bool sweep_some(RubatoShard *shard);
void sweep_all(RubatoShard *shard);

/* How many rows have expired. */
uint64_t n_expired(const RubatoShard *shard);

#endif
