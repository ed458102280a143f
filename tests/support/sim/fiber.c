/* A switch saves the registers that a function call preserves, and the stack pointer. On processors
 * other than x86-64, ucontext does that, with a system call for each switch.
 *
 * The address sanitizer is told of each switch, because it knows a thread's stack by its bounds. */
#include "tests/support/sim/fiber.h"

#include <assert.h>
#include <glib.h>
#include <sys/mman.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define HAS_ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAS_ASAN
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

#ifdef HAS_ASAN
#define STACK_BYTES ((size_t)1 << 20)
#else
#define STACK_BYTES ((size_t)256 << 10)
#endif
#define GUARD_BYTES ((size_t)4 << 10)

typedef struct {
#ifdef __x86_64__
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    void *fake_stack; /* the address sanitizer's */
    const void *bottom;
    size_t bytes;
} Context;

struct Fiber {
    Context context;
    void (*run)(void *data);
    void *data;
    char *stack; /* with its guard */
    bool has_begun, has_ended;
};

static Fiber *current;
static Context outside;
static GPtrArray *unused_stacks;

/* ---- switching ---- */

#ifdef __x86_64__
void fiber_switch_stacks(void **save, void *to);

__asm__(".text\n"
        ".type fiber_switch_stacks, @function\n"
        "fiber_switch_stacks:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_switch_stacks, . - fiber_switch_stacks\n");
#endif

/* `last`: `from` is never resumed. */
static void switch_context(Context *from, Context *to, bool last)
{
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->bottom, to->bytes);
#else
    (void)last;
#endif
#ifdef __x86_64__
    fiber_switch_stacks(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void begin(void)
{
    Fiber *const self = current;

#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(NULL, &outside.bottom, &outside.bytes);
#endif
    self->run(self->data);
    self->has_ended = true;
    current = NULL;
    switch_context(&self->context, &outside, /* last= */ true);
    g_assert_not_reached();
}

static void prepare(Fiber *self)
{
    char *const bottom = self->stack + GUARD_BYTES;

    self->context.bottom = bottom;
    self->context.bytes = STACK_BYTES;
#ifdef __x86_64__
    void **top = (void **)(void *)(bottom + STACK_BYTES);

    *--top = NULL; /* the return address of begin, which also aligns its frame */
    *--top = (void *)(guintptr)begin;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    self->context.stack_pointer = top;
#else
    getcontext(&self->context.context);
    self->context.context.uc_stack.ss_sp = bottom;
    self->context.context.uc_stack.ss_size = STACK_BYTES;
    self->context.context.uc_link = NULL;
    makecontext(&self->context.context, begin, 0);
#endif
}

/* ---- fibers ---- */

static char *take_stack(void)
{
    if (unused_stacks == NULL)
        unused_stacks = g_ptr_array_new();
    if (unused_stacks->len > 0)
        return g_ptr_array_remove_index_fast(unused_stacks, unused_stacks->len - 1);
    char *const stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0)
        g_error("no memory for a fiber's stack");
    return stack;
}

Fiber *fiber_new(void (*run)(void *data), void *data)
{
    Fiber *const self = g_new0(Fiber, 1);

    self->run = run;
    self->data = data;
    self->stack = take_stack();
    return self;
}

void fiber_free(Fiber *fiber)
{
    if (fiber == NULL)
        return;
#ifdef HAS_ASAN
    __asan_unpoison_memory_region(fiber->stack + GUARD_BYTES, STACK_BYTES);
#endif
    g_ptr_array_add(unused_stacks, fiber->stack);
    g_free(fiber);
}

void fiber_resume(Fiber *fiber)
{
    assert(current == NULL && !fiber->has_ended);
    if (!fiber->has_begun)
        prepare(fiber);
    fiber->has_begun = true;
    current = fiber;
    switch_context(&outside, &fiber->context, /* last= */ false);
}

void fiber_pause(void)
{
    Fiber *const self = current;

    assert(self != NULL);
    current = NULL;
    switch_context(&self->context, &outside, /* last= */ false);
}

bool fiber_has_ended(const Fiber *fiber)
{
    return fiber->has_ended;
}
