/* What a part with replicas remembers of Adds and Gets in one request: the rows that each was
 * answered with. It is part of the part's state, on its primary and on its replicas alike. So
 * whoever has the part gives one that is sent again the same rows, and not those that later Adds
 * have changed.
 *
 * Of each worker the last answers are kept, up to a bound: of a number of requests, and of bytes.
 * What it has under way is among them, if it is no more than that.
 *
 * Thread: the part's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_ADD_ANSWERS_H
#define RUBATO_ENGINE_SERVER_REPLICAS_ADD_ANSWERS_H

#include <glib.h>
#include <stddef.h>
#include <stdint.h>

/* So many answers of a worker are kept, with so many bytes in all. */
#define ADD_ANSWERS_MOST 64u
#define ADD_ANSWERS_BYTES ((size_t)64 << 10)

typedef struct AddAnswers AddAnswers;

/* A request of a worker: by its number, and by its place among the worker's changes on the part,
 * which a process in the place of a lost one gives it again. */
typedef struct {
    uint32_t worker;
    uint64_t sequence;  /* 0: it is not sent again by its number */
    uint64_t clock, at; /* at which clock, and behind how many changed keys of this clock */
} AddAsked;

typedef struct {
    AddAsked asked;
    size_t n_bytes;
    GList link;           /* of its worker's, the oldest first */
    unsigned char rows[]; /* n_bytes */
} AddAnswer;

/* Frees all. NULL is allowed. */
void add_answers_free(AddAnswers *answers);

/* Room for the answer to a worker's request, which is behind those before; the caller fills it.
 * *answers NULL: there are none yet. NULL: it is not kept, because it is too large, or there is no
 * memory. (transfer none) */
AddAnswer *add_answers_keep(AddAnswers **answers, const AddAsked *asked, size_t n_bytes);

/* By its number, which is not 0. NULL: it is not kept, or has another size. */
AddAnswer *add_answers_find(const AddAnswers *answers, uint32_t worker, uint64_t sequence,
                            size_t n_bytes);

/* By its place. It gets the number that it has now. NULL: likewise. */
AddAnswer *add_answers_repeat(const AddAnswers *answers, const AddAsked *asked, size_t n_bytes);

/* All of them, those of a worker in their order. */
void add_answers_each(const AddAnswers *answers, void (*take)(void *user, const AddAnswer *answer),
                      void *user);

#endif
