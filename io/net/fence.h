/* A fence: it ends when every server has taken in all that this node sent it before.
 *
 * Threads: any; each fence belongs to its caller. */
#ifndef RUBATO_IO_NET_FENCE_H
#define RUBATO_IO_NET_FENCE_H

#include "io/net/post_office/post_office.h"

/* A part with replicas. The fence waits until its replicas have what it has, too. */
typedef struct {
    uint32_t table, part, server;
} FencedPart;

/* Begins the call. `messages` has one for each server and one for each of the parts, and stays
 * until the call has ended. epoch: of the task, 0 between tasks. *cancelled is set before
 * post_office_cancel sweeps that epoch; the call then ends as cancelled. */
void fence_start(PostOffice *office, uint32_t epoch, const _Atomic bool *cancelled,
                 const FencedPart *parts, uint32_t n_parts, Message *messages, Call *call);

#endif
