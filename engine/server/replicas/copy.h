/* What a replica that is made gets from its primary (copy.c), for what decides when it gets it
 * (server_copies.c).
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_COPY_H
#define RUBATO_ENGINE_SERVER_REPLICAS_COPY_H

#include "engine/server/moving/part_state.h"
#include "engine/server/server_private.h"

typedef struct {
    Server *server;
    FedPart *fed;
    uint32_t to;      /* a server's number */
    size_t n_bytes;   /* of what was sent */
    bool keeps_calls; /* a model keeps calls of handlers, which may look at any row when they run */
    bool is_starved;  /* there was no memory to send a piece: no more are sent */
} Copy;

/* The begin or the end of an image, as of the present input; the end of a slice; or that there is
 * to be no image. */
void copy_push_mark(Copy *copy, uint32_t map, uint8_t kind);

/* What was had of senders, and what each task has on the part. False: there is no memory. */
bool copy_push_tasks(Copy *copy);

/* At the end of the image: with which rows Adds and Gets of its tasks were answered. */
void copy_push_answers(Copy *copy);

/* For the rest, whose requests become pieces of the image. False: there is no memory. */
bool copy_open_state(Copy *copy, PartState *state);

#endif
