/* The part map. Once it is closed no sender uses it any more, and what was sent before has been
 * posted. A sender that begins after it was opened finds the part where it is. Senders here have
 * fences of their own (PART_MAP_FENCED), because the checker does not see what the kernel's barrier
 * does. */
#include "tables/part_map.h"

#include <stdlib.h>

#include "tests/weak/cases.h"

enum { SENDERS = 2 };

static PartMap *map;
static PartSender senders[SENDERS];
static uint32_t home;            /* plain: the server that has the part */
static uint32_t posted[SENDERS]; /* plain: what each sender has posted */

static void begin(void)
{
    map = part_map_new(1, 1);
    atomic_init(&map->state, PART_MAP_FENCED);
    for (unsigned i = 0; i < SENDERS; i++) {
        part_map_join(map, &senders[i]);
        posted[i] = 0;
    }
    home = 0;
}

static void end(void)
{
    for (unsigned i = 0; i < SENDERS; i++)
        part_map_leave(map, &senders[i]);
    part_map_free(map);
}

/* The mover writes `home` and reads `posted` while the map is closed: a sender that is still
 * sending would be a race, or at the wrong server. */
static void *send_once(void *number)
{
    const uintptr_t i = (uintptr_t)number;

    while (!part_map_begin_slowly(map, &senders[i]))
        (void)part_map_wait(map, -1);
    weak_expect(part_map_server(map, 0) == home);
    posted[i]++;
    part_map_end(&senders[i]);
    return NULL;
}

static void *move(void *unused)
{
    uint32_t n = 0;

    (void)unused;
    part_map_close(map);
    for (unsigned i = 0; i < SENDERS; i++)
        n += posted[i];
    weak_expect(n <= SENDERS);
    home = 1;
    part_map_open(map, 0, 1, 2);
    return NULL;
}

static void one_sender(void)
{
    begin();
    const unsigned mover = weak_start("mover", move, NULL);
    send_once((void *)0);
    weak_join(mover);
    end();
}

static void two_senders(void)
{
    begin();
    const unsigned mover = weak_start("mover", move, NULL);
    const unsigned other = weak_start("sender", send_once, (void *)1);
    send_once((void *)0);
    weak_join(mover);
    weak_join(other);
    end();
}

/* Whoever has waited until the map is open finds the part where it is, or has sent what comes in
 * front of what the mover sends. */
static _Atomic uint32_t sent;
static uint32_t seen_by_mover;

static void *move_and_look(void *unused)
{
    (void)unused;
    part_map_close(map);
    seen_by_mover = atomic_load(&sent);
    part_map_open(map, 0, 1, 2);
    return NULL;
}

static void waiter(void)
{
    bool is_old;

    begin();
    atomic_init(&sent, 0);
    const unsigned mover = weak_start("mover", move_and_look, NULL);
    atomic_store(&sent, 1);
    while (!part_map_wait(map, -1))
        ;
    is_old = part_map_server(map, 0) == 0;
    weak_join(mover);
    weak_expect(!is_old || seen_by_mover == 1);
    end();
}

const WeakCase part_map_cases[] = {
    { "part_map_one_sender", one_sender },
    { "part_map_two_senders", two_senders },
    { "part_map_waiter", waiter },
    { NULL, NULL },
};
