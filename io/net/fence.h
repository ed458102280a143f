/* A fence: it ends when every server has taken in all that this node sent it before.
 *
 * Threads: any; each fence belongs to its caller, and so does a FenceMemory. */
#ifndef RUBATO_IO_NET_FENCE_H
#define RUBATO_IO_NET_FENCE_H

#include "io/net/post_office/post_office.h"

/* A part with replicas. The fence waits until its replicas have what it has, too. */
typedef struct {
    uint32_t table, part, server;
} FencedPart;

/* What the fences of a caller have found out, so that a later one need not ask a node to which
 * nothing was sent since: N nodes that are in a barrier again and again, and ask each other for
 * nothing, send no N (N - 1) fences. */
typedef struct FenceMemory FenceMemory;

/* Nothing of that for which the caller fences has been sent yet: as a task is made, before its
 * workers are. So even the first fence asks only nodes to which something was sent since. */
FenceMemory *fence_memory_new(const PostOffice *office);
void fence_memory_free(FenceMemory *memory); /* NULL is allowed */

/* The last fence with this memory has ended, and every server has answered it. */
void fence_memory_note(FenceMemory *memory);

/* Begins the call. `messages` has one for each server and one for each of the parts, and stays
 * until the call has ended. epoch: of the task, 0 between tasks. *cancelled is set before
 * post_office_cancel sweeps that epoch; the call then ends as cancelled. memory may be NULL. */
void fence_start(PostOffice *office, uint32_t epoch, const _Atomic bool *cancelled,
                 const FencedPart *parts, uint32_t n_parts, FenceMemory *memory, Message *messages,
                 Call *call);

#endif
