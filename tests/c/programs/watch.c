/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stands between a program and the library (LD_PRELOAD): before each call of an exported function it
 * sets errno to a value that no call sets, and looks at errno when the call has succeeded. What the
 * program sees is as without it. At exit it appends a line for each function that was called to the
 * file that WATCH_FILE names: name, calls that succeeded, those of them that changed errno.
 *
 * A stub replaces its return address: arguments stay where they are, whatever they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MARKER = 3999, DEEP = 64 };

/* How the result of a function shows success. */
struct watched {
    const char *name;
    char answer;
};

static const struct watched watched[] = {
#define STUB(index, function, answer) {#function, answer},
#include "stubs.h"
#undef STUB
};
enum { ALL = sizeof watched / sizeof watched[0] };

static void *real[ALL];
static long succeeded[ALL], changed[ALL];

/* A call that this thread has entered and not left. */
struct entered {
    uintptr_t back;
    long index;
    int before;
};
static _Thread_local struct entered entered[DEEP];
static _Thread_local int depth;

__attribute__((constructor(101))) static void find(void)
{
    for (int index = 0; index < ALL; index++) {
        real[index] = dlsym(RTLD_NEXT, watched[index].name);
    }
}

__attribute__((destructor)) static void report(void)
{
    const char *name = getenv("WATCH_FILE");
    FILE *file = name == NULL ? NULL : fopen(name, "a");
    for (int index = 0; index < ALL && file != NULL; index++) {
        if (succeeded[index] != 0) {
            fprintf(file, "%s %ld %ld\n", watched[index].name, succeeded[index], changed[index]);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Returns the function to call. No vector register may change: they hold arguments. */
__attribute__((target("general-regs-only"), used)) void *watch_enter(long index, uintptr_t *back);
void watch_return(void);

void *watch_enter(long index, uintptr_t *back)
{
    if (depth < DEEP) {
        entered[depth++] = (struct entered){*back, index, errno};
        *back = (uintptr_t)watch_return;
        errno = MARKER;
    }
    return real[index];
}

/* Returns the address to return to. */
__attribute__((used)) uintptr_t watch_leave(uintptr_t answer);

uintptr_t watch_leave(uintptr_t answer)
{
    struct entered call = entered[--depth];
    char form = watched[call.index].answer;
    int success = form == 'p'                  ? answer != 0
                  : form == 'i' || form == 'n' ? (int)answer >= 0
                  : form == 's'                ? (int)answer == 0
                                               : 1;
    if (success) {
        __atomic_fetch_add(&succeeded[call.index], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&changed[call.index], errno != MARKER, __ATOMIC_RELAXED);
    }
    if (errno == MARKER) {
        errno = call.before;
    }
    return call.back;
}

__asm__(".text\n"
        "watch_stub:\n"
        "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %rax\n"
        "  mov %r11, %rdi\n"
        "  lea 56(%rsp), %rsi\n"
        "  call watch_enter@PLT\n"
        "  mov %rax, %r11\n"
        "  pop %rax\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
        "  jmp *%r11\n"
        ".globl watch_return\n"
        "watch_return:\n"
        "  sub $48, %rsp\n"
        "  mov %rax, (%rsp)\n  mov %rdx, 8(%rsp)\n  movups %xmm0, 16(%rsp)\n"
        "  mov %rax, %rdi\n"
        "  call watch_leave@PLT\n"
        "  mov %rax, %r11\n"
        "  mov (%rsp), %rax\n  mov 8(%rsp), %rdx\n  movups 16(%rsp), %xmm0\n"
        "  add $48, %rsp\n"
        "  jmp *%r11\n");

#define STUB(index, function, answer)                                                              \
    __asm__(".text\n.globl " #function "\n.type " #function ", @function\n" #function ":\n"        \
            "  mov $" #index ", %r11\n  jmp watch_stub\n.size " #function ", . - " #function "\n");
#include "stubs.h"
