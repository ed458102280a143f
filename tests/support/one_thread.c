/* Linked into tests that the thread sanitizer does not run, because they have one thread. If one of
 * them starts a thread, the list in tests/CMakeLists.txt is wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__typeof__(pthread_create) __wrap_pthread_create;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *data)
{
    (void)thread;
    (void)attributes;
    (void)function;
    (void)data;
    fprintf(stderr, "this test starts a thread: take it off one_thread in tests/CMakeLists.txt\n");
    abort();
}
