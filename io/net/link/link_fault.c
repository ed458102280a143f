/* When the faults of a link are its sender's. A pure state machine; see link_fault.h. */
#include "io/net/link/link_fault.h"

#include <stddef.h>

void link_fault_clear(LinkFault *fault)
{
    fault->what = NULL;
}

void link_fault_sign(LinkFault *fault, const char *what, unsigned apart_ms, int64_t now_ms)
{
    if (fault->what == NULL)
        *fault =
            (LinkFault){ .since_ms = now_ms, .asked_ms = INT64_MIN / 2, .tried_ms = INT64_MIN / 2 };
    fault->what = what;
    if (!fault->has_asked || now_ms - fault->tried_ms < apart_ms)
        return;
    fault->n_tries++;
    fault->tried_ms = now_ms;
    fault->has_asked = false;
}

bool link_fault_asks(LinkFault *fault, unsigned apart_ms, int64_t now_ms)
{
    if (fault->what == NULL || now_ms - fault->asked_ms < apart_ms)
        return false;
    fault->asked_ms = now_ms;
    fault->has_asked = true;
    return true;
}

bool link_fault_is_final(const LinkFault *fault, unsigned timeout_ms, int64_t now_ms)
{
    return fault->what != NULL && fault->n_tries >= LINK_FAULT_TRIES &&
           now_ms - fault->since_ms >= timeout_ms;
}
