/* The outside project's own function. It has the name of one inside Rubato's library, which must
 * not matter, whichever way Rubato is linked.
 *
 * Threads: any. */
#ifndef OUTSIDE_WORDS_H
#define OUTSIDE_WORDS_H

#include <rubato/rubato.h>

/* The dtype's name, and nothing else. (transfer none) */
const char *message_copy(RubatoDtype dtype);

#endif
