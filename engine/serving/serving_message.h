/* What a follower and a program say to each other. All numbers are little-endian.
 *
 * A request: version of this format (u32), kind (u32), then by kind
 *
 *     GET       flags (u32), bytes of the name (u32), the name, keys (u64 each) up to the end
 *     TABLE     the name
 *     GO_TO     version (u64)
 *     the others nothing
 *
 * An answer: 0 and what follows, or 1 + a code of RubatoErrorCode and its text (u32, the rest).
 *
 *     GET       version (u64), dtype, width (u32 each), for each key how many values its row has
 *               (u32; SERVING_NO_ROW: none), the values of the rows one after the other
 *     TABLE     dtype, shape, width, holds_range (u32 each), first_key, n_keys, n_rows (u64 each)
 *     STATUS    version, time (u64 each), is_held, n_clients (u32 each), n_gets, n_keys (u64 each),
 *               the text of the fault
 *     LIST      for each table its name and a zero
 *     HOLD, CONTINUE, GO_TO  nothing */
#ifndef RUBATO_ENGINE_SERVING_SERVING_MESSAGE_H
#define RUBATO_ENGINE_SERVING_SERVING_MESSAGE_H

#include <rubato/remote_follower.h>

#define SERVING_FORMAT 1u

typedef enum {
    SERVING_GET,
    SERVING_TABLE,
    SERVING_STATUS,
    SERVING_LIST,
    SERVING_HOLD,
    SERVING_CONTINUE,
    SERVING_GO_TO,
    SERVING_N_KINDS,
} ServingKind;

#define SERVING_NO_ROW UINT32_MAX

/* GET: the answer may have rows of different lengths. */
#define SERVING_ANY_LENGTH 1u

#define SERVING_MOST_NAME 4096u /* bytes of the name of a table, and of an error text */

/* The largest messages. */
#define SERVING_MOST_REQUEST (RUBATO_REMOTE_MOST_KEYS * sizeof(RubatoKey) + SERVING_MOST_NAME + 64)
#define SERVING_MOST_ANSWER \
    (RUBATO_REMOTE_MOST_BYTES + RUBATO_REMOTE_MOST_KEYS * sizeof(uint32_t) + 64)

#endif
