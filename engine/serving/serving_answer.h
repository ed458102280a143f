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

/* The most bytes of the answer to such a request. An answer that waits for a version is small. */
size_t serving_answer_most(const uint8_t *request, size_t n);

/* Writes the answer to a request; also to one that makes no sense. One that does not fit into the
 * writer becomes an error. False: there is no memory for that, either. */
bool serving_answer(ServingFollowing *following, ServingCounts *counts, const uint8_t *request,
                    size_t n, RubatoByteWriter *answer);

#endif
