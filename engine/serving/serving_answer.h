/* What a follower answers: bytes come in, bytes go out. What comes may be anything.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_SERVING_SERVING_ANSWER_H
#define RUBATO_ENGINE_SERVING_SERVING_ANSWER_H

#include <rubato/bytes.h>

#include "engine/serving/serving_following.h"

/* The numbers of a status that the following does not know. */
typedef struct {
    _Atomic uint32_t n_clients;
    _Atomic uint64_t n_gets, n_keys;
} ServingCounts;

/* Writes the answer to a request; also to one that makes no sense. False: there is no memory for
 * it. */
bool serving_answer(ServingFollowing *following, ServingCounts *counts, const uint8_t *request,
                    size_t n, RubatoByteWriter *answer);

#endif
