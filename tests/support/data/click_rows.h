/* Generated clicks, which a wide and a deep model learn together, and neither alone.
 *
 * A row of csv is click, user, place, x, y: a label of 0 or 1, two words, and two numbers. Its
 * score has two parts of the same variance. One belongs to the pair of user and place, and says
 * nothing of any other pair: only a weight for each pair has it. The other is that of a chess board
 * over x and y: no sum of weights has it, and it says the same of all pairs. The label is drawn by
 * the score. Everything depends on the seed and the row's number, so another range of numbers is a
 * test set.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_DATA_CLICK_ROWS_H
#define TESTS_SUPPORT_DATA_CLICK_ROWS_H

#include <stddef.h>
#include <stdint.h>

#define CLICK_COLUMNS "user,place" /* those with words */
#define CLICK_CROSS "1:2"          /* their fields */

/* Writes rows first .. first + n - 1, with a header, of so many users and places. */
void click_rows_write(const char *path, uint32_t n_users, uint32_t n_places, uint64_t seed,
                      uint64_t first, size_t n);

#endif
