/* Calls: parts, the worst answer, waiting with and without a limit, and wake-ups. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/net/call.h"
#include "tests/support/runner.h"

START_TEST(a_call_ends_with_its_last_part_and_when_all_is_sent)
{
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, 2);
    call_end_part(&call, CALL_OK, 7);
    call_end_part(&call, CALL_OK, 9);
    ck_assert(!call_has_ended(&call));
    call_sent(&call);
    ck_assert(call_has_ended(&call));
    ck_assert(call_wait(&call, 0));
    ck_assert(call_wait(&call, -1));
}
END_TEST

START_TEST(parts_may_end_several_at_once)
{
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, 200);
    call_sent(&call);
    call_end_parts(&call, 150, CALL_OK, 7);
    ck_assert(!call_has_ended(&call));
    call_end_parts(&call, 49, CALL_FAILED, 5);
    ck_assert(!call_has_ended(&call));
    call_end_part(&call, CALL_OK, 9);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_FAILED);
    ck_assert_uint_eq(call.min_clock, 5);
}
END_TEST

START_TEST(a_call_without_parts_ends_when_it_is_sent)
{
    Call call;

    call_begin(&call, NULL);
    ck_assert(!call_has_ended(&call));
    call_sent(&call);
    ck_assert(call_wait(&call, -1));
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(call.min_clock, UINT64_MAX);
}
END_TEST

/* The parts' answers in every order. */
START_TEST(the_worst_status_and_the_lowest_clock_count)
{
    static const CallStatus orders[6][3] = {
        { CALL_OK, CALL_CANCELLED, CALL_REFUSED }, { CALL_OK, CALL_REFUSED, CALL_CANCELLED },
        { CALL_CANCELLED, CALL_OK, CALL_REFUSED }, { CALL_CANCELLED, CALL_REFUSED, CALL_OK },
        { CALL_REFUSED, CALL_OK, CALL_CANCELLED }, { CALL_REFUSED, CALL_CANCELLED, CALL_OK },
    };
    Call call;
    CallStatus worst = CALL_OK;
    uint64_t lowest = UINT64_MAX;

    call_begin(&call, NULL);
    call_add_parts(&call, 3);
    call_sent(&call);
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t clock = 10 + (uint64_t)((_i + (int)i * 2) % 5);

        call_end_part(&call, orders[_i][i], clock);
        worst = orders[_i][i] > worst ? orders[_i][i] : worst;
        lowest = clock < lowest ? clock : lowest;
        ck_assert_uint_eq(call.status, worst);
        ck_assert_uint_eq(call.min_clock, lowest);
    }
    ck_assert(call_has_ended(&call));
}
END_TEST

START_TEST(a_wait_with_a_limit_gives_up_and_may_be_taken_up_again)
{
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    call_sent(&call);
    ck_assert(!call_wait(&call, 0));
    ck_assert(!call_wait(&call, 5));
    ck_assert(!call_has_ended(&call));
    call_end_part(&call, CALL_OK, 0);
    ck_assert(call_has_ended(&call));
    ck_assert(call_wait(&call, 5));
}
END_TEST

/* ---- the callback ---- */

typedef struct {
    Call call; /* first */
    unsigned n_ended;
    pthread_t ended_by;
} Counted;

static void count_end(Call *call)
{
    Counted *counted = (Counted *)call;

    counted->n_ended++;
    counted->ended_by = pthread_self();
}

static void *end_two_parts(void *user)
{
    Call *call = user;

    call_end_part(call, CALL_OK, 1);
    call_end_part(call, CALL_OK, 1);
    return NULL;
}

static bool is_rung(int fd)
{
    uint64_t n;

    return read(fd, &n, sizeof n) == sizeof n;
}

START_TEST(a_bell_is_rung_once_by_the_last_part)
{
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Call call;

    for (int clears = 0; clears < 2; clears++) {
        call_begin(&call, NULL);
        call_add_parts(&call, 2);
        call_sent(&call);
        ck_assert(call_set_bell(&call, fd));
        call_end_part(&call, CALL_OK, 1);
        ck_assert(!is_rung(fd));
        if (clears == 1)
            call_clear_bell(&call);
        call_end_part(&call, CALL_OK, 1);
        ck_assert(is_rung(fd) == (clears == 0));
        ck_assert(!call_set_bell(&call, fd)); /* it has ended */
        call_clear_bell(&call);
        ck_assert(call_has_ended(&call));
    }
    close(fd);
}
END_TEST

START_TEST(ended_runs_once_on_the_thread_of_the_last_part)
{
    Counted counted = { .n_ended = 0 };
    pthread_t thread;

    call_begin(&counted.call, count_end);
    call_add_parts(&counted.call, 2);
    call_sent(&counted.call);
    ck_assert_uint_eq(counted.n_ended, 0);
    pthread_create(&thread, NULL, end_two_parts, &counted.call);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(counted.n_ended, 1);
    ck_assert(pthread_equal(counted.ended_by, thread));
}
END_TEST

START_TEST(ended_runs_in_sent_where_all_parts_have_ended_before)
{
    Counted counted = { .n_ended = 0 };

    call_begin(&counted.call, count_end);
    call_add_parts(&counted.call, 1);
    call_end_part(&counted.call, CALL_OK, 1);
    ck_assert_uint_eq(counted.n_ended, 0);
    call_sent(&counted.call);
    ck_assert_uint_eq(counted.n_ended, 1);
}
END_TEST

/* ---- answering threads ---- */

enum { N_ANSWERERS = 3, N_CALLS = 3000 };

/* Calls on the heap, which the waiter frees as soon as it is awake: an answering thread must not
 * touch them after the last part. Each answer is plain memory that the waiter reads. */
typedef struct {
    Call call;
    uint64_t answers[N_ANSWERERS];
} HeapCall;

typedef struct {
    _Atomic(HeapCall *) slots[N_ANSWERERS];
    _Atomic bool stop;
} Desk;

typedef struct {
    Desk *desk;
    uint32_t number;
} Answerer;

static void *answer_calls(void *user)
{
    const Answerer *answerer = user;
    Desk *desk = answerer->desk;
    uint64_t count = 0;

    while (!atomic_load(&desk->stop)) {
        HeapCall *heap_call = atomic_exchange(&desk->slots[answerer->number], NULL);

        if (heap_call == NULL) {
            sched_yield();
            continue;
        }
        count++;
        heap_call->answers[answerer->number] = count;
        if (count % 7 == 0) /* so that the waiter is asleep, now and then */
            for (int i = 0; i < 50; i++)
                sched_yield();
        call_end_part(&heap_call->call, count % 5 == 0 ? CALL_CANCELLED : CALL_OK, count);
    }
    return NULL;
}

START_TEST(a_call_may_be_freed_as_soon_as_its_waiter_wakes)
{
    Desk desk = { .stop = false };
    Answerer answerers[N_ANSWERERS];
    pthread_t threads[N_ANSWERERS];

    for (uint32_t i = 0; i < N_ANSWERERS; i++) {
        answerers[i] = (Answerer){ &desk, i };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, answer_calls, &answerers[i]), 0);
    }
    for (uint64_t count = 1; count <= N_CALLS; count++) {
        HeapCall *heap_call = calloc(1, sizeof *heap_call);

        call_begin(&heap_call->call, NULL);
        call_add_parts(&heap_call->call, N_ANSWERERS);
        for (uint32_t i = 0; i < N_ANSWERERS; i++)
            atomic_store(&desk.slots[i], heap_call);
        call_sent(&heap_call->call);
        while (!call_wait(&heap_call->call, count % 2 == 0 ? -1 : 3))
            ;
        for (uint32_t i = 0; i < N_ANSWERERS; i++)
            ck_assert_uint_eq(heap_call->answers[i], count);
        ck_assert_uint_eq(heap_call->call.status, count % 5 == 0 ? CALL_CANCELLED : CALL_OK);
        ck_assert_uint_eq(heap_call->call.min_clock, count);
        memset(heap_call, 0xee, sizeof *heap_call);
        free(heap_call);
    }
    atomic_store(&desk.stop, true);
    for (uint32_t i = 0; i < N_ANSWERERS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call");
    TCase *alone = tcase_create("alone");
    TCase *together = tcase_create("together");

    tcase_add_test(alone, a_call_ends_with_its_last_part_and_when_all_is_sent);
    tcase_add_test(alone, parts_may_end_several_at_once);
    tcase_add_test(alone, a_call_without_parts_ends_when_it_is_sent);
    tcase_add_loop_test(alone, the_worst_status_and_the_lowest_clock_count, 0, 6);
    tcase_add_test(alone, a_wait_with_a_limit_gives_up_and_may_be_taken_up_again);
    tcase_add_test(alone, a_bell_is_rung_once_by_the_last_part);
    tcase_add_test(alone, ended_runs_once_on_the_thread_of_the_last_part);
    tcase_add_test(alone, ended_runs_in_sent_where_all_parts_have_ended_before);
    suite_add_tcase(suite, alone);
    tcase_add_test(together, a_call_may_be_freed_as_soon_as_its_waiter_wakes);
    tcase_set_timeout(together, 20);
    suite_add_tcase(suite, together);
    return run_suite(suite);
}
