/* What stops a link: its next packet cannot be read, or does not come while later ones do. A packet
 * may be damaged or lost on its way; then it comes again. So the receiver asks for it again and
 * again. The sender is at fault only if two things hold. The fault has lasted for some time. And
 * something else came after the receiver had asked, a certain number of times. Time alone is not
 * enough, because the receiver or the sender may have been stopped for a while. Such tries are
 * some time apart, however often the receiver asks: a sender that is busy may not yet have read
 * that it was asked.
 *
 * A pure state machine. Threads: one at a time. Times are monotonic ms, passed in. */
#ifndef RUBATO_IO_NET_LINK_LINK_FAULT_H
#define RUBATO_IO_NET_LINK_LINK_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *what; /* of the latest sign; NULL: nothing is wrong */
    int64_t since_ms; /* of the first sign */
    int64_t asked_ms;
    int64_t tried_ms; /* of the latest sign that counted as a try */
    bool has_asked;   /* since that sign */
    uint32_t n_tries; /* signs that came after the packet was asked for */
} LinkFault;

/* A sender is given up after so many tries, at the least. */
#define LINK_FAULT_TRIES 10

/* The next packet has come, or it is this node that could not take it. */
void link_fault_clear(LinkFault *fault);

/* A sign: the next packet was unreadable, or another one came instead of it. It counts as a try if
 * the packet was asked for, apart_ms or more after the try before it. */
void link_fault_sign(LinkFault *fault, const char *what, unsigned apart_ms, int64_t now_ms);

/* Whether to ask for the next packet now: once in apart_ms, while there is a fault. */
bool link_fault_asks(LinkFault *fault, unsigned apart_ms, int64_t now_ms);

/* Whether the sender is to be given up, when a sign has come. */
bool link_fault_is_final(const LinkFault *fault, unsigned timeout_ms, int64_t now_ms);

#endif
