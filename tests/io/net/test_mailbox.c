/* Mailboxes: nothing lost, nothing twice, and in the order in which it was pushed. */
#include <pthread.h>
#include <stdlib.h>

#include "io/net/mailbox.h"
#include "tests/support/runner.h"

START_TEST(an_empty_mailbox_gives_nothing)
{
    Mailbox mailbox;

    mailbox_init(&mailbox);
    ck_assert(mailbox_is_empty(&mailbox));
    ck_assert_ptr_null(mailbox_take(&mailbox));
}
END_TEST

START_TEST(messages_come_out_oldest_first_and_all_at_once)
{
    Mailbox mailbox;
    Message messages[5];
    const Message *taken;

    mailbox_init(&mailbox);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            messages[i] = (Message){ .server = (uint32_t)i };
            mailbox_push(&mailbox, &messages[i]);
            ck_assert(!mailbox_is_empty(&mailbox));
        }
        taken = mailbox_take(&mailbox);
        for (int i = 0; i < 5; i++) {
            ck_assert_ptr_eq(taken, &messages[i]);
            taken = taken->next;
        }
        ck_assert_ptr_null(taken);
        ck_assert(mailbox_is_empty(&mailbox));
        ck_assert_ptr_null(mailbox_take(&mailbox));
    }
}
END_TEST

/* ---- many producers ---- */

enum { N_PRODUCERS = 6, N_EACH = 4000 };

/* server is the producer and request.clock its count. The payload is written before the push and
 * read after the take, without any other synchronisation. */
typedef struct {
    Message message; /* first */
    uint64_t payload;
} Letter;

typedef struct {
    Mailbox *mailbox;
    uint32_t number;
    pthread_barrier_t *begin;
} Producer;

static void *produce(void *user)
{
    const Producer *producer = user;

    pthread_barrier_wait(producer->begin);
    for (uint64_t i = 0; i < N_EACH; i++) {
        Letter *letter = calloc(1, sizeof *letter);

        letter->message.server = producer->number;
        letter->message.request.clock = i;
        letter->payload = i * 31 + producer->number;
        mailbox_push(producer->mailbox, &letter->message);
    }
    return NULL;
}

START_TEST(each_producers_messages_stay_in_order_and_none_is_lost)
{
    Mailbox mailbox;
    pthread_barrier_t begin;
    pthread_t threads[N_PRODUCERS];
    Producer producers[N_PRODUCERS];
    uint64_t next_of[N_PRODUCERS] = { 0 };
    unsigned n_received = 0;

    mailbox_init(&mailbox);
    pthread_barrier_init(&begin, NULL, N_PRODUCERS + 1);
    for (uint32_t i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (Producer){ &mailbox, i, &begin };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    pthread_barrier_wait(&begin);
    while (n_received < N_PRODUCERS * N_EACH) {
        Message *next;

        for (Message *message = mailbox_take(&mailbox); message != NULL; message = next) {
            const Letter *letter = (const Letter *)message;

            next = message->next;
            ck_assert_uint_eq(message->request.clock, next_of[message->server]++);
            ck_assert_uint_eq(letter->payload, message->request.clock * 31 + message->server);
            free(message);
            n_received++;
        }
    }
    for (uint32_t i = 0; i < N_PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(mailbox_is_empty(&mailbox));
    pthread_barrier_destroy(&begin);
}
END_TEST

/* ---- order across producers ---- */

enum { N_TURNS = 3000 };

typedef struct {
    Mailbox *mailbox;
    _Atomic uint32_t *turn; /* the number that goes next; the threads take turns */
    uint32_t number;
    uint32_t n_threads;
    Message *messages; /* N_TURNS */
} TurnTaker;

static void *take_turns(void *user)
{
    const TurnTaker *taker = user;

    for (uint32_t i = taker->number; i < N_TURNS; i += taker->n_threads) {
        while (atomic_load_explicit(taker->turn, memory_order_acquire) != i)
            sched_yield();
        taker->messages[i] = (Message){ .server = i };
        mailbox_push(taker->mailbox, &taker->messages[i]);
        atomic_store_explicit(taker->turn, i + 1, memory_order_release);
    }
    return NULL;
}

START_TEST(a_push_that_happens_before_another_threads_push_comes_out_before_it)
{
    Mailbox mailbox;
    _Atomic uint32_t turn = 0;
    pthread_t threads[3];
    TurnTaker takers[3];
    Message *messages = calloc(N_TURNS, sizeof *messages);
    uint32_t expected = 0;

    mailbox_init(&mailbox);
    for (uint32_t i = 0; i < 3; i++) {
        takers[i] = (TurnTaker){ &mailbox, &turn, i, 3, messages };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_turns, &takers[i]), 0);
    }
    while (expected < N_TURNS) {
        const Message *message = mailbox_take(&mailbox);

        if (message == NULL)
            sched_yield();
        for (; message != NULL; message = message->next)
            ck_assert_uint_eq(message->server, expected++);
    }
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    free(messages);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mailbox");
    TCase *alone = tcase_create("alone");
    TCase *together = tcase_create("together");

    tcase_add_test(alone, an_empty_mailbox_gives_nothing);
    tcase_add_test(alone, messages_come_out_oldest_first_and_all_at_once);
    suite_add_tcase(suite, alone);
    tcase_add_loop_test(together, each_producers_messages_stay_in_order_and_none_is_lost, 0, 5);
    tcase_add_test(together, a_push_that_happens_before_another_threads_push_comes_out_before_it);
    tcase_set_timeout(together, 20);
    suite_add_tcase(suite, together);
    return run_suite(suite);
}
