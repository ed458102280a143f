#include "tests/support/engine/mover.h"

#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/support/engine/engine_fixture.h"

struct Mover {
    RubatoEngine *engine;
    const char *table;
    uint32_t n_parts;
    uint64_t random;
    pthread_t thread;
    sem_t begun;
    _Atomic bool done;
    uint64_t n_moves;
    GError *error;
};

static void *move(void *user)
{
    Mover *mover = user;

    sem_wait(&mover->begun);
    do {
        const uint32_t part = random_below(&mover->random, mover->n_parts);
        const uint32_t server =
            random_below(&mover->random, rubato_engine_n_servers(mover->engine));

        if (!rubato_engine_move_part(mover->engine, mover->table, part, server, &mover->error))
            return NULL;
        mover->n_moves++;
    } while (!atomic_load(&mover->done));
    return NULL;
}

Mover *mover_new(RubatoEngine *engine, const char *table, uint32_t n_parts, uint64_t seed)
{
    Mover *mover = g_new0(Mover, 1);

    mover->engine = engine;
    mover->table = table;
    mover->n_parts = n_parts;
    mover->random = seed;
    ck_assert_int_eq(sem_init(&mover->begun, 0, 0), 0);
    ck_assert_int_eq(pthread_create(&mover->thread, NULL, move, mover), 0);
    return mover;
}

void mover_begin(Mover *mover)
{
    if (mover != NULL)
        sem_post(&mover->begun);
}

uint64_t mover_end(Mover *mover)
{
    uint64_t n_moves;

    atomic_store(&mover->done, true);
    pthread_join(mover->thread, NULL);
    ck_assert_msg(mover->error == NULL, "%s", mover->error == NULL ? "" : mover->error->message);
    n_moves = mover->n_moves;
    sem_destroy(&mover->begun);
    g_free(mover);
    return n_moves;
}
