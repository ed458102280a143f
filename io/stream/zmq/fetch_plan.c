/* Which versions a reader asks for. */
#include "io/stream/zmq/fetch_plan.h"

#include <string.h>

/* n: it is not there. */
static size_t find(const ListedVersion *theirs, size_t n, uint64_t number)
{
    size_t first = 0, end = n;

    while (first < end) {
        const size_t middle = first + (end - first) / 2;

        if (theirs[middle].number < number)
            first = middle + 1;
        else
            end = middle;
    }
    return first < n && theirs[first].number == number ? first : n;
}

/* The newest one and those on which it builds, the one with all rows first. If one of them is not
 * there, the newest before that is taken. 0: there is none. */
static size_t find_chain(const ListedVersion *theirs, size_t n, size_t *at)
{
    for (size_t newest = n; newest-- > 0;) {
        size_t i = newest, n_at = 0;

        at[n_at++] = i;
        while (theirs[i].base != 0) {
            const size_t base = find(theirs, i, theirs[i].base);

            if (base == i || theirs[base].seed != theirs[i].base_seed)
                break;
            at[n_at++] = i = base;
        }
        if (theirs[i].base != 0)
            continue;
        for (size_t k = 0; k < n_at / 2; k++) {
            const size_t swapped = at[k];

            at[k] = at[n_at - 1 - k];
            at[n_at - 1 - k] = swapped;
        }
        return n_at;
    }
    return 0;
}

FetchKind fetch_plan(uint64_t own, uint64_t own_seed, const ListedVersion *theirs, size_t n,
                     size_t *at, size_t *n_at)
{
    const size_t same = find(theirs, n, own), next = find(theirs, n, own + 1);
    size_t first = n;

    *n_at = 0;
    if (n == 0)
        return FETCH_NOTHING;
    if (own != 0 && same < n && theirs[same].seed == own_seed)
        first = same + 1;
    else if (own != 0 && same == n && next < n &&
             (theirs[next].base == 0 ||
              (theirs[next].base == own && theirs[next].base_seed == own_seed)))
        first = next;
    else {
        *n_at = find_chain(theirs, n, at);
        if (*n_at == 0)
            return FETCH_NOTHING;
        return own != 0 && (same < n || own > theirs[n - 1].number) ? FETCH_OTHER : FETCH_ANEW;
    }
    for (size_t i = first; i < n; i++)
        at[(*n_at)++] = i;
    return *n_at > 0 ? FETCH_NEXT : FETCH_NOTHING;
}

size_t fetch_plan_leave_out(const ListedVersion *theirs, size_t *at, size_t n_at)
{
    size_t first = n_at;

    while (first-- > 0)
        if (theirs[at[first]].base == 0)
            break;
    if (first == SIZE_MAX) /* none has all rows */
        return n_at;
    memmove(at, at + first, (n_at - first) * sizeof *at);
    return n_at - first;
}
