/* Plain accesses of memory: what two threads do to the same object, one of them writing, has to be
 * ordered by happens-before.
 *
 * The sources under check are compiled with -fsanitize=thread, so the compiler calls the functions
 * below before each access that another thread could see; they are linked without the sanitizer's
 * own library. An access is known by its address alone: members are accessed by their own. Of a
 * copy by memcpy its beginning counts, and of a long one some places more.
 *
 * As in FastTrack (Flanagan, Freund: PLDI 2009) but with all threads' reads written down. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/weak/checker.h"

typedef struct {
    const void *address;
    uint64_t execution; /* else it is empty */
    uint32_t writer, written;
    uint32_t touched[WEAK_THREADS]; /* read, or accessed by an atomic operation */
} Cell;

enum { CELLS = 1 << 12 };
static Cell cells[CELLS];
static Cell *used[CELLS]; /* in this execution */
static unsigned n_used;
static uint64_t execution;

/* What was given back in this execution, and is kept until its end. */
enum { MOST_FREED = 1024 };
static void *freed[MOST_FREED];
static unsigned n_freed;

void races_begin(void)
{
    execution++;
    n_used = 0;
    while (n_freed > 0)
        free(freed[--n_freed]);
}

static Cell *find_cell(const void *address)
{
    size_t at = (size_t)((uintptr_t)address * 0x9e3779b97f4a7c15u >> 40) % CELLS;

    for (; cells[at].execution == execution; at = (at + 1) % CELLS)
        if (cells[at].address == address)
            return &cells[at];
    if (n_used == CELLS / 2)
        weak_fail("more than %d objects", CELLS / 2);
    used[n_used++] = &cells[at];
    cells[at] = (Cell){ .address = address, .execution = execution, .writer = WEAK_THREADS };
    return &cells[at];
}

static void check_written(const Cell *cell, const char *what)
{
    if (cell->writer != WEAK_THREADS && cell->writer != thread_number() &&
        cell->written > thread_view()->clock[cell->writer])
        weak_fail("a data race on %p: %s by thread %u (%s), written by thread %u", cell->address,
                  what, thread_number(), thread_name(), cell->writer);
}

/* Clocks begin at 1: what a cell does not have is 0. */
static void note(uint32_t *clock)
{
    *clock = thread_view()->clock[thread_number()];
}

static void touch(const void *address, const char *what)
{
    Cell *const cell = find_cell(address);

    check_written(cell, what);
    note(&cell->touched[thread_number()]);
}

static void race_read(const void *address)
{
    if (thread_is_running())
        touch(address, "read");
}

void race_touch(const void *address)
{
    touch(address, "accessed atomically");
}

static void check_unused(const Cell *cell, const char *what)
{
    check_written(cell, what);
    for (unsigned i = 0; i < WEAK_THREADS; i++)
        if (i != thread_number() && cell->touched[i] > thread_view()->clock[i])
            weak_fail("a data race on %p: %s by thread %u (%s), in use by thread %u", cell->address,
                      what, thread_number(), thread_name(), i);
}

void race_write(const void *address)
{
    if (!thread_is_running())
        return;
    Cell *const cell = find_cell(address);

    check_unused(cell, "written");
    cell->writer = thread_number();
    note(&cell->written);
}

/* ---- memory that is given back ---- */

void weak_free(void *memory);

void weak_free(void *memory)
{
    if (memory == NULL || !thread_is_running()) {
        free(memory);
        return;
    }
    for (unsigned i = 0; i < n_used; i++) {
        const ptrdiff_t at = (const char *)used[i]->address - (char *)memory;

        if (at >= 0 && (size_t)at < malloc_usable_size(memory)) {
            check_unused(used[i], "given back");
            used[i]->writer = thread_number();
            note(&used[i]->written);
        }
    }
    if (n_freed == MOST_FREED)
        weak_fail("more than %d times memory is given back", MOST_FREED);
    freed[n_freed++] = memory;
}

/* ---- copies ---- */

void *weak_copy(void *to, const void *from, size_t size);

/* Of long ones a part stands for the whole. */
enum { COPY_STRIDE = 512 };

void *weak_copy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i += COPY_STRIDE) {
        race_read((const char *)from + i);
        race_write((char *)to + i);
    }
    return memcpy(to, from, size);
}

/* ---- what the compiler calls ---- */

#define ACCESS(size)                                  \
    void __tsan_read##size(void *address);            \
    void __tsan_write##size(void *address);           \
    void __tsan_unaligned_read##size(void *address);  \
    void __tsan_unaligned_write##size(void *address); \
    void __tsan_read##size(void *address)             \
    {                                                 \
        race_read(address);                           \
    }                                                 \
    void __tsan_write##size(void *address)            \
    {                                                 \
        race_write(address);                          \
    }                                                 \
    void __tsan_unaligned_read##size(void *address)   \
    {                                                 \
        race_read(address);                           \
    }                                                 \
    void __tsan_unaligned_write##size(void *address)  \
    {                                                 \
        race_write(address);                          \
    }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *address, size_t size);
void __tsan_write_range(void *address, size_t size);
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void)
{
}

/* Structs, word by word: so members of a word's size are known by their addresses here, too. */
void __tsan_read_range(void *address, size_t size)
{
    for (size_t i = 0; i < size; i += 8)
        race_read((char *)address + i);
}

void __tsan_write_range(void *address, size_t size)
{
    for (size_t i = 0; i < size; i += 8)
        race_write((char *)address + i);
}

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size)
{
    return memmove(to, from, size);
}

void *__tsan_memset(void *to, int value, size_t size)
{
    return memset(to, value, size);
}
