// What the operating system is asked for: os_linux.c, os_darwin.c and os_windows.c implement it.
#ifndef ES_RUNTIME_OS_H
#define ES_RUNTIME_OS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "edgeserve.h"

// Zeroed pages, at least 64-byte aligned. `huge` asks for 2 MiB pages and alignment; a system
// without them gives ordinary ones. NULL when there is no memory.
void *es_os_pages(size_t n_bytes, int huge);
void es_os_pages_free(void *pages, size_t n_bytes);

// Up to n_bytes of a file, from `offset` on: how many came, 0 at the file's end, and where it
// cannot be read the system's error number, negative. `file` as in es_weight_place.
int64_t es_os_read(int64_t file, int64_t offset, void *into, size_t n_bytes);

// Sleeps while *word == expected, or returns early; wakes everybody who sleeps on it.
void es_os_wait(atomic_uint *word, uint32_t expected);
void es_os_wake_all(atomic_uint *word);

typedef struct es_os_thread es_os_thread;
// The thread blocks all signals it can: they belong to the program's own threads.
es_status es_os_thread_start(void (*fn)(void *), void *argument, es_os_thread **out);
void es_os_thread_join(es_os_thread *thread);

// Cores to compute on: physical and performance cores, within affinity and cgroup cpu.max.
int32_t es_os_n_cores(void);
int64_t es_os_process_id(void);
uint64_t es_os_nanoseconds(void); // monotonic

// Floating-point control: the default rounding and subnormals kept; returns what was set before.
uint64_t es_os_float_control_begin(void);
void es_os_float_control_end(uint64_t previous);

#endif
