/* Sleeping on a word of memory until another thread changes it. Linux futexes, inside a process.
 *
 * Threads: any. A waiter must re-check its condition: wake-ups may be spurious. */
#ifndef RUBATO_IO_NET_FUTEX_H
#define RUBATO_IO_NET_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word is `expected`, for timeout_ms at most (negative: without limit). */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t expected, int timeout_ms)
{
    struct timespec timeout = { timeout_ms / 1000, (timeout_ms % 1000) * 1000000L };
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ms < 0 ? NULL : &timeout, NULL,
            0);
}

/* Wakes up to n sleepers. Only the address counts: the word may be gone already. */
static inline void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Tells the processor that this is a waiting loop. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
