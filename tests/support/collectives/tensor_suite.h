/* The conformance suite of collectives between nodes: the parts that each backend and each
 * transport has to pass, on nodes with 1 to 4 workers together (TENSOR_MOST_WORKERS).
 *
 * Threads: that of the engine's calls. All nodes make the same calls in the same order. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_SUITE_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_SUITE_H

#include <rubato/rubato.h>

/* n_workers: of all nodes. */
typedef bool (*TensorSuitePart)(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Each dtype with each operation and reduction. */
bool tensor_suite_dtypes(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Each operation and reduction with a dtype of each size, which is all that a way between nodes
 * knows of it; groups, tickets, joins, Adasum, disagreements. */
bool tensor_suite_operations(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Sets of workers. */
bool tensor_suite_sets(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Tensors larger than any window. */
bool tensor_suite_much(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Sums whose bits depend on their order, of tensors and of numbers. */
bool tensor_suite_sums(RubatoEngine *engine, uint32_t n_workers, GError **error);
bool tensor_suite_numbers(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Values that travel as halves. */
bool tensor_suite_compression(RubatoEngine *engine, uint32_t n_workers, GError **error);

/* Names that come again, together and alone: worker 0's node compares their bits. */
bool tensor_suite_repeats(RubatoEngine *engine, uint32_t n_workers, GError **error);

#endif
