// What Linux and macOS have in common: threads and pages. Included by their two files only.
#ifndef ES_RUNTIME_OS_POSIX_H
#define ES_RUNTIME_OS_POSIX_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/os.h"

struct es_os_thread {
    pthread_t id;
    void (*fn)(void *);
    void *argument;
};

static void *thread_main(void *argument) {
    es_os_thread *thread = argument;
    thread->fn(thread->argument);
    return NULL;
}

es_status es_os_thread_start(void (*fn)(void *), void *argument, es_os_thread **out) {
    es_os_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        return ES_ERR_MEMORY;
    }
    thread->fn = fn;
    thread->argument = argument;
    // The thread inherits a mask that blocks everything: signals go to the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&thread->id, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(thread);
        return ES_ERR_SYSTEM;
    }
    *out = thread;
    return ES_OK;
}

void es_os_thread_join(es_os_thread *thread) {
    pthread_join(thread->id, NULL);
    free(thread);
}

int64_t es_os_read(int64_t file, int64_t offset, void *into, size_t n_bytes) {
    const size_t most = (size_t)1 << 30; // of one call: more is refused by some systems
    ssize_t moved;
    do {
        moved = pread((int)file, into, n_bytes < most ? n_bytes : most, (off_t)offset);
    } while (moved < 0 && errno == EINTR);
    return moved < 0 ? -(int64_t)errno : (int64_t)moved;
}

int64_t es_os_process_id(void) { return (int64_t)getpid(); }

uint64_t es_os_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
