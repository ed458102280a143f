/* The checker from inside: what memory.c, threads.c, races.c and explore.c share.
 *
 * Threads: one. `execution` is the one that runs. */
#ifndef TESTS_WEAK_CHECKER_H
#define TESTS_WEAK_CHECKER_H

#include "tests/weak/weak.h"

enum {
    WEAK_THREADS = 6,
    WEAK_OBJECTS = 192,     /* atomic ones, in one execution */
    WEAK_STORES = 400,      /* to each of them */
    WEAK_ORDERED = 1024,    /* sequentially consistent operations, in one execution */
    WEAK_STEPS = 6000,      /* of an execution; more have no end */
    WEAK_CHOICES = 1 << 13, /* of an execution */
    WEAK_OLDER = 3,         /* stores but the newest that a load may choose from */
};

/* ---- what a thread knows (memory.c) ---- */

/* A set of sequentially consistent operations, by their numbers. */
typedef struct {
    uint64_t words[WEAK_ORDERED / 64];
} OrderedSet;

typedef struct {
    uint16_t seen[WEAK_OBJECTS];  /* the oldest store that may still be read */
    uint32_t clock[WEAK_THREADS]; /* the steps of each thread that happened before */
    OrderedSet ordered;           /* the sequentially consistent operations that happened before */
} View;

void view_join(View *view, const View *other);

/* Forgets all objects. */
void memory_begin(void);

/* For a futex on the word: what it holds as this thread may see it; what the kernel has been
 * told. */
uint64_t memory_kernel_load(const volatile void *object, size_t size);
void memory_kernel_sees(const volatile void *object);

/* ---- threads (threads.c) ---- */

/* The view of the thread that runs. */
View *thread_view(void);
unsigned thread_number(void);
const char *thread_name(void);

/* Before an operation: another thread may go first. */
void thread_step(void);

/* The same, but there is no choice if the thread repeats its last operation and no other thread has
 * done anything since: to go to another thread now is the same as having gone before. */
void thread_step_again(const void *what);

/* Whether an execution is under way. */
bool thread_is_running(void);

/* Runs the case in an execution of its own. False: it has failed, for the reason told. */
bool threads_run(const WeakCase *one, char *text, size_t text_bytes);

/* ---- races (races.c) ---- */

void races_begin(void);
void race_write(const void *address);
void race_touch(const void *address); /* by an atomic operation */

/* ---- choices and the story (explore.c) ---- */

typedef enum { CHOICE_THREAD, CHOICE_STORE } ChoiceKind;

/* One of 0 … n - 1, n >= 2. */
unsigned choose(ChoiceKind kind, unsigned n);

/* The order that holds at a place: weaker than written where weak_weaken says so. Notes the
 * visit. */
int site_order(WeakSite *site);
int site_failure(WeakSite *site);

/* A line of the story: nothing, unless it is told. */
bool story_is_told(void);
void story_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void story_add_at(const WeakSite *site, int order, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
